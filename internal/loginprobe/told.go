package loginprobe

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// updateOf returns the MachineUpdate of a Machine by what finds it in a cache, or nil: there need be none, and one may be that of an earlier Machine.
func updateOf(find func(types.NamespacedName) (*refitv1.MachineUpdate, error), machine *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	mu, err := find(client.ObjectKeyFromObject(machine))
	if err != nil {
		return nil, fmt.Errorf("read MachineUpdate %s/%s: %w", machine.Namespace, machine.Name, err)
	}
	if mu != nil && !metav1.IsControlledBy(mu, machine) {
		mu = nil
	}
	return mu, nil
}

// working reports whether an update works on the node: it knows better whether that can be reached.
func working(mu *refitv1.MachineUpdate) bool {
	if mu == nil {
		return false
	}
	switch mu.Status.Phase {
	case refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying:
		return true
	default:
		return mu.Status.RebootingSince != nil
	}
}

// unreached are the reasons for which an update, or a comparison, has not come in to the node.
var unreached = map[string]bool{
	refitv1.ReasonNodeAccess: true, refitv1.ReasonUnreachable: true, refitv1.ReasonHostKey: true, refitv1.ReasonAgent: true,
}

// told returns what a MachineUpdate says of the last login to its node, and when that was: an update and a comparison log in, too. ok is false if it
// says nothing.
func told(mu *refitv1.MachineUpdate, now time.Time) (f Finding, at time.Time, ok bool) {
	if mu == nil {
		return f, at, false
	}
	s := &mu.Status
	if waitsForNode(mu) {
		return Finding{s.Reason, s.Message}, now, true // it tries again and again
	}
	if s.Phase == refitv1.PhaseSucceeded && s.FinishedAt != nil {
		at = s.FinishedAt.Time
	}
	if s.Drift != nil {
		f, at = compared(s, at)
	}
	return f, at, !at.IsZero()
}

// waitsForNode reports whether an update waits until it can log in.
func waitsForNode(mu *refitv1.MachineUpdate) bool {
	s := &mu.Status
	return s.Phase == refitv1.PhaseWaiting && s.ObservedDigest == mu.Spec.Digest && unreached[s.Reason] && s.RebootingSince == nil
}

// compared returns what comparisons of the node have met, and when, if that was after another login, which succeeded.
func compared(s *refitv1.MachineUpdateStatus, login time.Time) (Finding, time.Time) {
	d, at := s.Drift, login
	if d.ComparedAt != nil && d.ComparedAt.After(at) {
		at = d.ComparedAt.Time
	}
	c := meta.FindStatusCondition(s.Conditions, refitv1.DriftedCondition)
	if c != nil && c.Status == metav1.ConditionUnknown && unreached[c.Reason] && d.CheckedAt != nil && d.CheckedAt.After(at) {
		return Finding{c.Reason, c.Message}, d.CheckedAt.Time
	}
	return Finding{}, at
}
