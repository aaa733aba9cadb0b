package bootimage

import (
	"errors"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters/image"
)

// Policy is a BootImagePolicy that was read. It does not change, and may be shared.
type Policy struct {
	policykind.Header // where it can't be read, whoever wrote it may have meant to keep the image, or to let it change

	mode    refitv1.BootImageMode
	partial labels.Selector // of Partial
	kinds   []image.Kind
	// minimum is nil where any version will do. minimumText is the same as the policy has it.
	minimum     version
	minimumText string
	pattern     *regexp.Regexp
}

// InvalidError says that no change of an image can be decided for a Machine until a policy that selects it is corrected.
type InvalidError struct {
	// Policy is the name of the policy.
	Policy string
	Err    error
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("BootImagePolicy %s can't be read, so it is not known whether the image may change: %v; correct the policy, or delete it",
		e.Policy, e.Err)
}

// Unwrap returns what is wrong with the policy.
func (e *InvalidError) Unwrap() error { return e.Err }

// Compile reads a policy. What the CRD checks is checked again, for an API server that has not the same one. A selector that
// can't be read selects every Machine of the namespace.
func Compile(p *refitv1.BootImagePolicy) *Policy {
	out := &Policy{
		Header: policykind.HeaderOf(p, p.Spec.Selector),
		mode:   p.Spec.Selection.Mode, pattern: defaultPattern, minimumText: p.Spec.MinimumVersion,
	}
	errs := [4]error{out.Err}
	out.partial, errs[1] = readPartial(p.Spec.Selection)
	if minimum := p.Spec.MinimumVersion; minimum != "" {
		v, ok := parseVersion(minimum)
		if out.minimum = v; !ok {
			errs[2] = &schedule.FieldError{Field: "minimumVersion", Err: fmt.Errorf("%q is not numbers with dots between them", minimum)}
		}
	}
	if expression := p.Spec.VersionPattern; expression != "" {
		pattern, err := readPattern(expression)
		if out.pattern = pattern; err != nil {
			errs[3] = &schedule.FieldError{Field: "versionPattern", Err: err}
		}
	}
	for _, k := range p.Spec.Kinds {
		out.kinds = append(out.kinds, image.Kind{Group: k.Group, Kind: k.Kind, Paths: k.Paths})
	}
	out.Err = errors.Join(errs[:]...)
	return out
}

// readPartial returns what selects the machines of Partial.
func readPartial(s refitv1.BootImageSelection) (labels.Selector, error) {
	if err := policykind.Word("selection.mode", s.Mode, refitv1.AllBootImages, refitv1.PartialBootImages, refitv1.NoBootImages); err != nil {
		return nil, err
	}
	switch {
	case s.Mode != refitv1.PartialBootImages && s.Machines != nil:
		return nil, &schedule.FieldError{Field: "selection.machines", Err: fmt.Errorf("it is for Partial, and the mode is %s", s.Mode)}
	case s.Mode != refitv1.PartialBootImages:
		return nil, nil
	case s.Machines == nil:
		return nil, &schedule.FieldError{Field: "selection.machines", Err: errors.New("it is missing, and Partial needs it")}
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Machines)
	if err != nil {
		return nil, &schedule.FieldError{Field: "selection.machines", Err: err}
	}
	return selector, nil
}

// lets reports whether the image of a machine with the labels, which the policy selects, may change.
func (p *Policy) lets(of labels.Set) bool {
	switch p.mode {
	case refitv1.AllBootImages:
		return true
	case refitv1.PartialBootImages:
		return p.partial != nil && p.partial.Matches(of)
	default: // None, and what is not known
		return false
	}
}

// Join returns what policies say together of a machine with the labels. They are in order, and so is what comes out. The strictest
// wins: the image may change only if each of them lets it; the kinds of all count.
func Join(policies []*Policy, of labels.Set) *image.Selected {
	out := &image.Selected{}
	for _, p := range policies {
		out.Policies = append(out.Policies, p.Name)
		if p.Err != nil && out.Err == nil {
			out.Err = &InvalidError{Policy: p.Name, Err: p.Err}
		}
		if !p.lets(of) {
			out.Keep = append(out.Keep, p.Name)
		}
		out.Kinds = append(out.Kinds, p.kinds...)
	}
	return out
}
