package machineupdate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// maxRepairs is how often a node is brought back without having been found as it was applied since. More would be a fight with
// whatever changes it, with the node's pods between the two.
const maxRepairs = 3

// answer says, in the message of a finding, what becomes of a node that has drifted. It returns whether it is brought back.
func (u *update) answer(ctx context.Context, machine *clusterv1.Machine, f *finding) (bool, error) {
	w, err := u.selectRules(ctx, machine)
	if err != nil {
		return false, err
	}
	if w != nil {
		f.message += "; what is to become of that can't be told: " + w.message
		return false, nil
	}
	switch u.selected.Drift {
	case refitv1.RefuseDrift:
		f.message += "; the next update of the Machine waits until it is put back, as a NodeDisruptionPolicy says"
		return false, nil
	case refitv1.RepairDrift:
	default:
		f.message += "; it is left as it is: put it back on the node, or have a NodeDisruptionPolicy do so (drift: Repair)"
		return false, nil
	}
	why, err := u.unrepairable(ctx, machine)
	if err != nil {
		return false, err
	}
	if why != "" {
		f.message += "; it is not brought back: " + why
		return false, nil
	}
	f.message += "; it is being brought back, as a NodeDisruptionPolicy says"
	return true, nil
}

// unrepairable says why a node that is to be brought back can't be, or "".
func (u *update) unrepairable(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	if d := u.mu.Status.Drift; d != nil && d.Repairs >= maxRepairs && !checkAsked(u.mu) {
		return fmt.Sprintf("that was done and has not helped, so something on the node changes it: find out what, and then: refit drift --now -n %s %s",
			u.mu.Namespace, u.mu.Name), nil
	}
	specs, err := u.readSpecs(ctx, machine)
	if err != nil {
		return "", err
	}
	if specs.digest != u.mu.Spec.Digest {
		return "the specs have changed since they were applied, and Cluster API has not asked for an update to them", nil
	}
	return "", nil
}

// repairBegins makes the status that of an update which is about to begin, for the specs that were applied already. All the
// questions are asked as for any other: window, slot, lease, drain.
func (u *update) repairBegins(s *refitv1.MachineUpdateStatus, message string) {
	if checkAsked(u.mu) && s.Drift != nil {
		s.Drift.Repairs = 0 // who asks has looked at what changes the node
	}
	u.anew(s, message)
	s.Repair = &refitv1.RepairStatus{StartedAt: u.now(), Token: s.Token}
}

// beforeRepair says whether a run on the node was there before the repair that is under way: its end says nothing about that.
func (u *update) beforeRepair(run node.Status) bool {
	r := u.mu.Status.Repair
	return r != nil && run.Token <= r.Token
}

// withdrawRepair ends a repair that has not begun on the node if it is no longer to be made, and says whether it has: a repair that
// waits for its window must not outlive the policy that asked for it.
func (u *update) withdrawRepair(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	if u.mu.Status.Repair == nil || u.started() || u.mu.Status.ApplyingSince != nil {
		return false, nil
	}
	why, err := u.unwanted(ctx, machine)
	if why == "" || err != nil {
		return false, err
	}
	if err := u.vacate(ctx, false); err != nil {
		return false, err
	}
	at := u.now()
	err = u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		takeBack(s)
		s.Phase, s.Reason, s.Step, s.FinishedAt = refitv1.PhaseSucceeded, "", "", &at
		s.Message = "the node was updated before; it has drifted since, and its repair was withdrawn: " + why
		s.Repair, s.Plan, s.Slot, s.Node, s.Drain = nil, nil, nil, nil, nil
		meta.RemoveStatusCondition(&s.Conditions, refitv1.PermittedCondition)
	})
	if err == nil {
		u.Gate.Forget(u.mu)
	}
	return true, err
}

// unwanted says why a repair is no longer to be made, or "".
func (u *update) unwanted(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	w, err := u.selectRules(ctx, machine)
	if err != nil || w != nil {
		return "", err // what the policies say is not known, which the update tells by itself
	}
	if u.selected.Drift != refitv1.RepairDrift {
		return "no NodeDisruptionPolicy asks for it any more", nil
	}
	specs, err := u.readSpecs(ctx, machine)
	if err != nil || specs.digest == u.mu.Spec.Digest {
		return "", err
	}
	return "the specs have changed since they were applied, and Cluster API has not asked for an update to them", nil
}

// refused is what an update waits for whose node has drifted, where a policy refuses that. A run that has begun is not stopped:
// what differs then may be its own.
func (u *update) refused(plan node.Plan, last node.Status) *wait {
	if u.selected == nil || u.selected.Drift != refitv1.RefuseDrift || last.State != node.Idle || u.mu.Status.Drain != nil {
		return nil
	}
	drift := plan.Drift
	for _, c := range plan.Changes {
		if c.Conflict {
			drift = append(drift, node.Drift{Ref: c.Ref, What: []string{"changed in the specs as well"}})
		}
	}
	if len(drift) == 0 {
		return nil
	}
	return &wait{
		reason: refitv1.ReasonBlocked,
		message: fmt.Sprintf("the node no longer shows what was applied to it, and a NodeDisruptionPolicy refuses updates of such a node (drift: Refuse): %s; "+
			"nothing was changed; put it back on the node as it was applied, or set drift of the policy to Report (it is left alone) or Repair (it is brought back)", driftNames(drift)),
	}
}
