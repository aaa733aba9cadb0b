package rotation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

// pass is one look at all that a policy selects.
type pass struct {
	*Controller
	policy *refitv1.BootImagePolicy
	before refitv1.BootImageRotationStatus
	images documents
	inputs string
	// settled reports that the inputs have been known for long enough to act on them.
	settled bool
	// known is what else decides about targets, and since when it is so; earlier is what the pass before knew.
	known, earlier map[string]seen
	// unasked says why Cluster API asks nobody whether machines may stay. Empty: it asks refit.
	unasked  string
	selector selector
	// others are the policies of the namespace that also keep templates at an image, and whose names come first.
	others   []other
	clusters map[string]*clusterv1.Cluster
	// templates are those that were read; nil for those that are not there.
	templates map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured
	// again reports that something changed meanwhile, and that it is worth to look soon.
	again bool
	// waits reports that a target waits for Cluster API, which nobody tells when it is done.
	waits bool
	// settles reports that a target waits until everybody can be expected to know what decides about it.
	settles bool
}

// other is another policy with a rotation.
type other struct {
	name string
	selector
}

// look brings one target to the golden image if it may, and says how it stands. An error is one that passes; what is returned with
// it is right all the same.
func (p *pass) look(ctx context.Context, t *target) (refitv1.BootImageTarget, error) {
	out := refitv1.BootImageTarget{Kind: t.gvk.Kind, Name: t.object.GetName(), Template: t.ref.Name}
	err := p.bring(ctx, t, &out)
	var no *refusedError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &no):
		out.State, out.Message = refitv1.TargetRefused, no.message
		return out, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		p.again = true
		out.State, out.Message = refitv1.TargetPending, "it has changed while refit looked at it, which looks again"
		return out, nil
	}
	out.State, out.Message = refitv1.TargetPending, "refit tries again: "+err.Error()
	return out, fmt.Errorf("%s: %w", t, err)
}

// bring does what look says. It sets the state, unless it returns an error.
func (p *pass) bring(ctx context.Context, t *target, out *refitv1.BootImageTarget) error {
	image, err := p.images.find(p.policy.Spec.Rotation, t.kubernetes)
	if err != nil {
		return refused("which image is golden for %s can't be told: %v", orUnknown(t.kubernetes), err)
	}
	out.Image = policykind.Note(image.shown())
	out.Times = p.times(t, out.Image)
	template, err := p.template(ctx, t)
	if err != nil {
		return err
	}
	wanted, differs, err := golden(template, p.policy.Spec.Rotation.Template.Fields, image)
	if err != nil {
		return err
	}
	if !differs {
		out.State = refitv1.TargetUpToDate
		if _, ours := baseOf(template); ours {
			out.State = refitv1.TargetRotated
		}
		return nil
	}
	if stays := p.stays(t, template, out.Times); stays.State != "" {
		out.State, out.Message = stays.State, stays.Message
		return nil
	}
	if err := p.may(ctx, t, template, wanted); err != nil {
		return err
	}
	if reason, err := p.notYet(ctx, t); err != nil || reason != "" {
		out.State, out.Message = refitv1.TargetPending, reason
		return err
	}
	return p.rotate(ctx, t, template, wanted, out)
}

func orUnknown(version string) string {
	if version == "" {
		return "machines without a version"
	}
	return version
}

// template reads the template of a target.
func (p *pass) template(ctx context.Context, t *target) (*unstructured.Unstructured, error) {
	template, err := p.read(ctx, t.ref)
	if err == nil && template == nil {
		err = refused("there is no %s %s, to which it refers", t.ref.Kind, t.ref.Name)
	}
	return template, err
}

// read returns a template of the policy's namespace, or nil if it is not there.
func (p *pass) read(ctx context.Context, ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	template, known := p.templates[ref]
	if known {
		return template, nil
	}
	template, err := external.GetObjectFromContractVersionedRef(ctx, p.Live, ref, p.policy.Namespace)
	if apierrors.IsNotFound(err) {
		template = nil
	} else if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	p.templates[ref] = template
	return template, nil
}

// stays returns why a target without the golden image is left alone, whatever the image. No state: it is not.
func (p *pass) stays(t *target, template *unstructured.Unstructured, times int32) refitv1.BootImageTarget {
	if t.paused() {
		return refitv1.BootImageTarget{State: refitv1.TargetPaused, Message: "it, or its Cluster, is paused"}
	}
	for _, o := range []*unstructured.Unstructured{t.object, template} {
		if reason := foreign(o); reason != "" {
			return refitv1.BootImageTarget{State: refitv1.TargetForeign, Message: reason}
		}
	}
	for _, o := range p.others {
		if o.selects(t) {
			return refitv1.BootImageTarget{State: refitv1.TargetRefused, Message: fmt.Sprintf(
				"BootImagePolicy %s selects it too, and comes first by its name; have one of them select it no longer", o.name)}
		}
	}
	if times >= maxTimes {
		return refitv1.BootImageTarget{State: refitv1.TargetStopped, Message: fmt.Sprintf(
			"it was brought to this image %d times, and somebody has set it back to %s each time; have whoever applies it leave "+
				"infrastructureRef alone, or not select it. It is tried again when the policy or the ConfigMap changes", times, template.GetName())}
	}
	return refitv1.BootImageTarget{}
}

// may returns a refusal if the image of the target's machines is not to change.
func (p *pass) may(ctx context.Context, t *target, template, wanted *unstructured.Unstructured) error {
	if fields := unknown(&p.policy.Spec); len(fields) > 0 {
		return refused("refit does not know %s of a %s to be its image; name an image field, or add it to spec.kinds",
			strings.Join(fields, ", "), machineKind(t.ref.Kind))
	}
	if p.policy.Spec.Rotation.Replacement == refitv1.AllowReplacement {
		return nil
	}
	reason, err := p.replaces(ctx, t, template, wanted)
	if err != nil {
		return err
	}
	if reason != "" {
		return refused("nothing was committed, since Cluster API would replace machines: %s; or set spec.rotation.replacement to Allow", reason)
	}
	return nil
}

// rotate makes the template and has the target refer to it. Killed between the two it leaves a template that the next pass finds.
func (p *pass) rotate(ctx context.Context, t *target, template, wanted *unstructured.Unstructured, out *refitv1.BootImageTarget) error {
	next, err := p.successor(t, template, wanted)
	if err != nil {
		return err
	}
	if err := p.ensure(ctx, next); err != nil {
		return err
	}
	if err := p.repoint(ctx, t, next.GetName(), out.Image, out.Times+1); err != nil {
		return err
	}
	out.State, out.Template = refitv1.TargetRotated, next.GetName()
	out.Times++
	p.Recorder.Eventf(t.object, p.policy, corev1.EventTypeNormal, "BootImageRotated", "Rotate", "%s", policykind.Note(fmt.Sprintf(
		"refers to the template %s with the golden image %s now, by BootImagePolicy %s", out.Template, out.Image, p.policy.Name)))
	return nil
}
