package machineupdate

import (
	"context"
	"fmt"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
)

// maxRepairs is how often a node is brought back without having been found as it was applied since. More would be a fight with
// whatever changes it, with the node's pods between the two.
const maxRepairs = 3

// answer adds to the message of a Finding what becomes of a node that has drifted. It reports whether it is brought back.
func (u *update) answer(ctx context.Context, machine *clusterv1.Machine, f *drift.Finding) (bool, error) {
	w, err := u.selectRules(ctx, machine)
	if err != nil {
		return false, err
	}
	if w != nil {
		f.Message += "; what is to become of that can't be told: " + w.message
		return false, nil
	}
	switch u.selected.Drift {
	case refitv1.RefuseDrift:
		f.Message += "; the next update of the Machine waits until it is put back, as a NodeDisruptionPolicy says"
		return false, nil
	case refitv1.RepairDrift:
	default:
		f.Message += "; it is left as it is: put it back on the node, or have a NodeDisruptionPolicy do so (drift: Repair)"
		return false, nil
	}
	why, err := u.unrepairable(ctx, machine)
	if err != nil {
		return false, err
	}
	if why != "" {
		f.Message += "; it is not brought back: " + why
		return false, nil
	}
	f.Message += "; it is being brought back, as a NodeDisruptionPolicy says"
	return true, nil
}

// unrepairable returns why a node that is to be brought back can't be, or "".
func (u *update) unrepairable(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	if d := u.mu.Status.Drift; d != nil && d.Repairs >= maxRepairs && !drift.Asked(u.mu) {
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
	if drift.Asked(u.mu) && s.Drift != nil {
		s.Drift.Repairs = 0 // who asks has looked at what changes the node
	}
	u.beginStatus(s, message)
	s.Repair = &refitv1.RepairStatus{StartedAt: u.now(), Token: s.Token}
}

// beforeRepair reports whether a run on the node was there before the repair that is under way: its end says nothing about that.
func (u *update) beforeRepair(run node.Status) bool {
	r := u.mu.Status.Repair
	return r != nil && run.Token <= r.Token
}

// checkRepair looks whether a repair that has not begun on the node is still to be made: one that waits for its window must not outlive the policy
// that asked for it.
func (u *update) checkRepair(ctx context.Context) (*wait, error) {
	if !u.started() && u.mu.Status.ApplyingSince == nil {
		why, err := u.unwanted(ctx, u.regarding)
		if err != nil {
			return nil, err
		}
		u.noRepair = why
	}
	u.seen.Unwanted = u.noRepair != ""
	u.seen.Wanted = !u.seen.Unwanted
	return nil, nil
}

// withdrawRepair ends a repair that is no longer to be made, and whose node is released.
func (u *update) withdrawRepair(ctx context.Context) error {
	at := u.now()
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		settle(s, settledWithdrawn)
		s.Phase, s.Reason, s.Step, s.FinishedAt = refitv1.PhaseSucceeded, "", "", &at
		s.Message = "the node was updated before; it has drifted since, and its repair was withdrawn: " + u.noRepair
	})
	if err == nil {
		u.Gate.Forget(u.mu)
	}
	return err
}

// unwanted returns why a repair is no longer to be made, or "".
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

// driftOf returns how a node differs from what was applied to it, also where the specs have changed the same.
func driftOf(plan node.Plan) []node.Drift {
	drifted := slices.Clip(plan.Drift)
	for _, c := range plan.Changes {
		if c.Conflict {
			drifted = append(drifted, node.Drift{Ref: c.Ref, What: []string{"changed in the specs as well"}})
		}
	}
	return drifted
}

// refuseDrift waits until a node that has drifted is put back, where a policy refuses to update it.
func (u *update) refuseDrift(context.Context) (*wait, error) {
	return &wait{
		reason: refitv1.ReasonBlocked,
		message: fmt.Sprintf("the node no longer shows what was applied to it, and a NodeDisruptionPolicy refuses updates of such a node (drift: Refuse): %s; "+
			"nothing was changed; put it back on the node as it was applied, or set drift of the policy to Report (it is left alone) or Repair (it is brought back)", drift.Names(driftOf(u.plan))),
	}, nil
}
