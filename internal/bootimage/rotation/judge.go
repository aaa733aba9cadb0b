package rotation

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/rollout"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/image"
)

// maxReasons is how many fields a refusal names.
const maxReasons = 3

// machineKind is the kind of the machines that are made from a kind of templates; Cluster API has it so.
func machineKind(template string) string {
	return strings.TrimSuffix(template, clusterv1.TemplateSuffix)
}

// unknown names the fields of a rotation that are not known to be images of the kind.
func unknown(spec *refitv1.BootImagePolicySpec) []string {
	template := spec.Rotation.Template
	var more []image.Kind
	for _, k := range spec.Kinds {
		more = append(more, image.Kind{Group: k.Group, Kind: k.Kind, Paths: k.Paths})
	}
	paths := image.Paths(template.Group, machineKind(template.Kind), more...)
	var out []string
	for _, f := range template.Fields {
		if !declared.Below(strings.Split(f.Path, "."), paths) {
			out = append(out, f.Path)
		}
	}
	return out
}

// replaces returns why Cluster API would replace machines of a target for a change of its template, and what to do. Empty: it would
// keep them all.
func (p *pass) replaces(ctx context.Context, t *target, from, to *unstructured.Unstructured) (string, error) {
	if t.onDelete() {
		return "", nil // a machine goes when somebody deletes it, and not before
	}
	reason, err := p.uncovered(ctx, t, from, to)
	if err != nil || reason != "" {
		return reason, err
	}
	if reason := t.surges(); reason != "" {
		return reason, nil
	}
	return p.unasked, nil
}

// keeps reports whether all machines of a target are to stay when its template changes.
func (p *pass) keeps(t *target) bool {
	return p.policy.Spec.Rotation.Replacement != refitv1.AllowReplacement && !t.onDelete()
}

// uncovered asks the updaters what Cluster API's hooks would be answered: about machines as their template has them, and about each
// Machine of a control plane, whose own labels may have other policies select it.
func (p *pass) uncovered(ctx context.Context, t *target, from, to *unstructured.Unstructured) (string, error) {
	reason, err := p.uncoveredFor(ctx, t, t.subject, from, to)
	if err != nil || reason != "" || !p.keepsEach(t) {
		return reason, err
	}
	members, err := p.members(ctx, t)
	if err != nil {
		return "", err
	}
	p.sight(byMembers(t), digestOfMembers(members))
	for i := range members {
		if !members[i].DeletionTimestamp.IsZero() {
			continue // it goes anyway
		}
		one := t.subject
		one.Labels = members[i].Labels
		reason, err := p.uncoveredFor(ctx, t, one, from, to)
		if err != nil {
			return "", err
		}
		if reason != "" {
			return fmt.Sprintf("of Machine %s, by its own labels, %s", members[i].Name, reason), nil
		}
	}
	return "", nil
}

func (p *pass) uncoveredFor(ctx context.Context, t *target, subject inplace.Subject, from, to *unstructured.Unstructured) (string, error) {
	registry, err := p.Updaters.For(ctx, subject)
	if err != nil {
		return "", fmt.Errorf("which updaters judge the machines of %s can't be told: %w", t, err)
	}
	spec := func(o *unstructured.Unstructured) fieldset.Spec {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
		return fieldset.Spec{APIVersion: o.GetAPIVersion(), Kind: machineKind(o.GetKind()), Value: value}
	}
	change, differs := fieldset.NewObjectChange(fieldset.InfrastructureMachine, spec(from), spec(to))
	if !differs {
		return "", nil
	}
	decision, err := registry.Decide(ctx, fieldset.Change{change})
	if err != nil {
		return "", fmt.Errorf("the change of %s's machines could not be judged: %w", t, err)
	}
	return reasons(decision), nil
}

func reasons(decision updaters.Decision) string {
	var out []string
	more := 0
	for _, v := range decision {
		switch {
		case v.Covered():
		case len(out) < maxReasons:
			out = append(out, fmt.Sprintf("%s: %s", v.Field, v.Reason))
		default:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// surges reports whether a rollout of the target makes a machine more, for which an old one goes in the end, whatever the hooks
// answer. A KubeadmControlPlane does with maxSurge 1, which is its default. A MachineDeployment does where no machine may be
// unavailable, which is its default too.
func (t *target) surges() string {
	strategy, _, _ := unstructured.NestedMap(t.object.Object, "spec", "rollout", "strategy")
	if t.gvk.Kind == controlPlanes.gvk.Kind {
		if !rollout.ControlPlaneSurges(setting(strategy, "maxSurge")) {
			return ""
		}
		return "with maxSurge 1 a rollout makes a machine more and deletes one; set spec.rollout.strategy.rollingUpdate.maxSurge of " +
			t.String() + " to 0, which takes three replicas"
	}
	wanted := int(replicas(t.object))
	if wanted == 0 || !rollout.LimitsOf(setting(strategy, "maxSurge"), setting(strategy, "maxUnavailable"), wanted).Surges() {
		return "" // where both are 0, Cluster API takes one machine at a time
	}
	return "where no machine may be unavailable a rollout makes a machine more and deletes one; set " +
		"spec.rollout.strategy.rollingUpdate.maxUnavailable of " + t.String() + " to 1 or more"
}

// setting reads a number or a percentage of a strategy.
func setting(strategy map[string]any, name string) *intstr.IntOrString {
	value, _, _ := unstructured.NestedFieldNoCopy(strategy, "rollingUpdate", name)
	return rollout.Setting(value)
}
