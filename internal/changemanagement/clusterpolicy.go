package changemanagement

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/schedule"
)

const (
	policyKind    = "ChangeManagementPolicy"
	clusterKind   = "ClusterChangeManagementPolicy"
	clusterPlural = "clusterchangemanagementpolicies"
)

// Title returns what people call the policy: its name, and its kind where that is of the platform. A name has no blank, so that neither is taken for the
// other.
func (p *Policy) Title() string {
	if p.Namespaces == nil {
		return p.Name
	}
	return clusterTitle(p.Name)
}

func clusterTitle(name string) string { return clusterKind + " " + name }

// CompileCluster reads a policy of the platform. If it can't be read, the policy that is returned with the error is closed and says why; a selector that
// can't be read selects every namespace.
func CompileCluster(p *refitv1.ClusterChangeManagementPolicy, calendars schedule.Calendars) (*Policy, error) {
	title := clusterTitle(p.Name)
	out, err := compile(p, p.Spec.ChangeManagementPolicySpec, title, calendars)
	errs := []error{err}
	if out.Namespaces, err = metav1.LabelSelectorAsSelector(&p.Spec.NamespaceSelector); err != nil {
		out.Namespaces = labels.Everything()
		errs = append(errs, &schedule.FieldError{Field: "namespaceSelector", Err: err})
	}
	out.Firm = p.Spec.Overrides != refitv1.AllowOverrides
	out.Own.read(clusterKind, p)
	out.Own = slices.DeleteFunc(out.Own, func(o Override) bool { return o.Kind == kindOf(refitv1.NotBeforeAnnotation) }) // it is about changes
	return out, out.refuse(title, append(errs, out.checkCluster(&p.Spec))...)
}

// checkCluster looks at what the CRD has checked before, for an API server that has not the same one.
func (p *Policy) checkCluster(s *refitv1.ClusterChangeManagementPolicySpec) error {
	errs := []error{policykind.Word("overrides", s.Overrides, "", refitv1.ForbidOverrides, refitv1.AllowOverrides)}
	if p.Firm && s.Strategy == schedule.ManualStrategy {
		errs = append(errs, &schedule.FieldError{Field: "overrides", Err: errors.New("strategy Manual needs Allow: changes are permitted at objects of namespaces")})
	}
	if b := p.Budget; b.MaxStartsPerWindow != 0 || b.MinSpacing != 0 || b.StopAfterFailures != 0 {
		errs = append(errs, &schedule.FieldError{Field: "budget", Err: errors.New("only maxConcurrent can be set for namespaces in common")})
	}
	if len(s.Gates) > 0 {
		errs = append(errs, &schedule.FieldError{Field: "gates", Err: errors.New("what they ask, and with which Secrets, is in a namespace: give policies of namespaces the gates")})
	}
	return errors.Join(errs...)
}

// MayBeFor reports whether the policy may be for a namespace of which only the name is known, or nothing if that is empty.
func (p *Policy) MayBeFor(namespace string) bool {
	if p.Namespaces == nil {
		return p.Namespace == namespace
	}
	requirements, _ := p.Namespaces.Requirements()
	name := labels.Set{corev1.LabelMetadataName: namespace}
	return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return namespace != "" && r.Key() == corev1.LabelMetadataName && !r.Matches(name)
	})
}

// CanMeet reports whether some Machine could be selected by both policies, as far as their selectors tell; those of different namespaces are not told
// apart.
func (p *Policy) CanMeet(o *Policy) bool {
	namespaces := p.Namespaces == nil || o.Namespaces == nil || selection.Compatible(p.Namespaces, o.Namespaces)
	return namespaces && p.Selector.CanMeet(o.Selector)
}
