package pending

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
)

// rests is what a verdict rests on beside what is compared.
type rests struct {
	generation int64  // of the owner
	revision   int64  // of the Machine's own specs, where there is no MachineSet
	basis      string // of the updaters
}

// verdict is what becomes of the Machines of a MachineSet, or of one of a control plane.
type verdict struct {
	rests
	at    time.Time
	cause refitv1.PendingCause
	// material reports that a change in place disturbs the node, and class is what it is and takes.
	material bool
	class    schedule.Class
	// unreached is the class if refit has no way to the node.
	unreached schedule.Class
	note      string
	// claims are the fields that registered extensions make.
	claims []refitv1.PendingClaim
	// left reports that refit's own updaters leave something of the change, which registered ones may claim.
	left bool
}

// old reports whether a verdict was made so long ago that it is to be made again.
func (v verdict) old(now time.Time) bool {
	if v.cause == refitv1.PendingUnknown {
		return now.Sub(v.at) >= unknownFor
	}
	return now.Sub(v.at) >= knownFor
}

// setOf returns by what a verdict is known: all Machines of a MachineSet have the same specs.
func setOf(m *clusterv1.Machine) (key types.NamespacedName, alone bool) {
	key = client.ObjectKeyFromObject(m)
	if ref := metav1.GetControllerOf(m); ref != nil && ref.Kind == "MachineSet" {
		key.Name = "MachineSet/" + ref.Name // no name has a slash
		return key, false
	}
	return key, true
}

// verdict returns what becomes of a Machine when what its owner wants is made, and why, as the hooks would decide. Cluster API asks
// nobody about what is paused, and neither is anybody asked here.
func (o *Owners) verdict(ctx context.Context, m *clusterv1.Machine, meta *metav1.PartialObjectMetadata, paused bool) verdict {
	key, alone := setOf(m)
	if v, ok := o.told[key]; ok {
		return v
	}
	on := rests{generation: meta.Generation}
	if alone {
		on.revision = m.Generation
	}
	v := o.compared(ctx, key, m, on)
	if v.left {
		v = o.others(ctx, key, m, v, paused)
	}
	v = o.reached(ctx, m, v)
	o.told[key] = v
	return v
}

// reached returns the verdict, by which the Machines are replaced if refit has no way to the node of one: hooks claim nothing then.
func (o *Owners) reached(ctx context.Context, m *clusterv1.Machine, v verdict) verdict {
	if o.Accesses == nil || v.cause != refitv1.PendingInPlace {
		return v
	}
	name, set := m.Name, false
	if ref := metav1.GetControllerOf(m); ref != nil && ref.Kind == "MachineSet" {
		name, set = ref.Name, true
	}
	why, err := o.Accesses.Without(ctx, m.Namespace, name, set)
	switch {
	case err != nil:
		return unknown(err.Error())
	case why != "":
		return verdict{cause: refitv1.PendingReplacement, class: v.unreached, note: "nothing can be updated in place: " + why}
	default:
		return v
	}
}

// compared returns the verdict by refit's own updaters. It is made again when what it rests on changes, and now and then, as far as this view may: what was
// known last counts until then.
func (o *Owners) compared(ctx context.Context, key types.NamespacedName, m *clusterv1.Machine, on rests) verdict {
	subject := inplace.SubjectOf(m)
	var err error
	if on.basis, err = o.Updaters.Basis(ctx, subject); err != nil {
		return unknown(err.Error())
	}
	now := o.Clock.Now()
	known, ok := o.verdicts[key]
	same := ok && known.rests == on
	switch {
	case same && !known.old(now):
		return known
	case o.may(same):
	case same:
		return known
	default:
		return unknown("refit has not looked yet at what is wanted")
	}
	v := o.judge(ctx, m, subject)
	v.rests, v.at = on, now
	o.verdicts[key] = v
	return v
}

// unknown is the verdict where there is none, and why.
func unknown(why string) verdict { return verdict{cause: refitv1.PendingUnknown, note: why} }

// judge compares a Machine with what its owner wants, and asks the updaters.
func (o *Owners) judge(ctx context.Context, m *clusterv1.Machine, s inplace.Subject) verdict {
	change, err := o.Differences.Difference(ctx, client.ObjectKeyFromObject(m))
	refused := &rollback.RefusedError{}
	switch {
	case errors.As(err, &refused):
		return unknown(refused.Reason)
	case err != nil: // it is no text for people
		ctrl.LoggerFrom(ctx).Info("Could not read what the owner of a Machine wants", "machine", client.ObjectKeyFromObject(m), "reason", err.Error())
		return unknown("what is wanted could not be read; refit tries again")
	case len(change) == 0:
		class := schedule.Class{Kinds: []schedule.Kind{schedule.ConfigurationKind}, Disruption: schedule.ReplaceDisruption}
		return verdict{cause: refitv1.PendingReplacement, class: class, note: "the owner wants another Machine without another specification"}
	}
	registry, err := o.Updaters.For(ctx, s)
	if err != nil {
		return unknown(err.Error())
	}
	decision, err := registry.Decide(ctx, change)
	if err != nil {
		return unknown(err.Error())
	}
	v := decided(change, decision)
	v.left = !decision.InPlace()
	return v
}

// decided is the verdict by what was decided.
func decided(change fieldset.Change, decision updaters.Decision) verdict {
	v := verdict{
		cause: refitv1.PendingInPlace, class: inplace.ClassOf(change, decision), unreached: inplace.ClassOf(change, inplace.Unreached(decision, "")),
	}
	for _, f := range decision {
		if !f.Covered() {
			v.cause, v.note = refitv1.PendingReplacement, fmt.Sprintf("%s of the %s can't be updated in place: %s", f.Field, f.Field.Object, f.Reason)
			return v
		}
		v.material = v.material || f.Disturbs()
	}
	return v
}
