package machineupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// What may not be lost is in the spec's record before it is in the status, since clusterctl move and backups leave statuses behind. So
// the record is never older than the status, and what is behind it is restored before anything is decided: after a move, and when
// refit ended between the two writes. See docs/adr/0020-what-a-move-takes-along.md.

// halfWrittenError is the error of a status that could not be written after its record was. It is no conflict to who asks for one: what was
// to be recorded is.
type halfWrittenError struct{ err error }

func (e *halfWrittenError) Error() string {
	return e.err.Error() + "; its record is written, and the status is restored from it"
}

// halfWritten reports whether a record was written and its status was not.
func halfWritten(err error) bool {
	var half *halfWrittenError
	return errors.As(err, &half)
}

// durable is what may not be lost of a status. What is not named here is: a field that is added is recorded.
func durable(s *refitv1.MachineUpdateStatus) refitv1.MachineUpdateStatus {
	d := *s.DeepCopy()
	d.Step, d.StepsDone, d.StepsTotal, d.Changes, d.Actions, d.WorstAction, d.Notes = "", 0, 0, nil, nil, "", nil
	d.Address, d.Instance, d.Conditions, d.RecordRevision, d.PhaseSince, d.HeldDigest = "", "", nil, 0, nil, ""
	if !ended(d.Phase) {
		d.Phase, d.Reason, d.Message, d.DelayedEnd = "", "", "", nil
	}
	if d.Drain != nil {
		d.Drain.PodsLeft, d.Drain.VolumesLeft, d.Drain.Blocked = 0, 0, nil
	}
	for i := range d.Updaters {
		d.Updaters[i].Message, d.Updaters[i].AskAgainAt = "", nil
	}
	if d.Rollback != nil && !d.Rollback.State.Ended() {
		d.Rollback.Message = "" // why it is tried again
	}
	d.Drift = durableDrift(s)
	return d
}

// durableDrift is what may not be lost of what is known of drift. What has drifted is found again. That something has is not for a while, and how often it was
// brought back in vain is not at all.
func durableDrift(s *refitv1.MachineUpdateStatus) *refitv1.DriftStatus {
	if s.Drift == nil {
		return nil
	}
	d := refitv1.DriftStatus{Repairs: s.Drift.Repairs}
	if s.Phase == refitv1.PhaseSucceeded && meta.IsStatusConditionTrue(s.Conditions, refitv1.DriftedCondition) {
		d.Total = 1 // how many they are changes, and that is not worth a write
	}
	if d.Repairs == 0 && d.Total == 0 {
		return nil
	}
	return &d
}

func ended(p refitv1.Phase) bool { return p == refitv1.PhaseSucceeded || p == refitv1.PhaseFailed }

// recordDue reports whether a status has what its record lacks. An update that has only begun to ask and to look needs no record: from what
// is recorded of the one before it begins the same way. Most wait for long, and many at once, so that this spares a write for each.
func recordDue(r *refitv1.UpdateRecord, next *refitv1.MachineUpdateStatus) bool {
	var base refitv1.MachineUpdateStatus
	if r != nil {
		base = r.Status
	}
	if sameFacts(&base, next) {
		return false
	}
	if ended(next.Phase) || next.Attempts > 0 || next.Admission != nil || next.Repair != nil || !beginsFrom(r, next) {
		return true
	}
	return !sameFacts(kept(&base), kept(next))
}

// beginsFrom reports whether the update that a status is about begins again when it is restored from a record.
func beginsFrom(r *refitv1.UpdateRecord, next *refitv1.MachineUpdateStatus) bool {
	switch {
	case r == nil:
		return true
	case r.Status.Phase == refitv1.PhaseSucceeded:
		return r.Status.ObservedDigest != next.ObservedDigest
	case r.Status.Phase == refitv1.PhaseFailed:
		return r.Status.ObservedDigest == next.ObservedDigest && r.Status.ObservedRetry != next.ObservedRetry
	default:
		return false
	}
}

// kept is what an update that begins takes over from the one before it.
func kept(s *refitv1.MachineUpdateStatus) *refitv1.MachineUpdateStatus {
	k := &refitv1.MachineUpdateStatus{
		HostKey: s.HostKey, Node: s.Node, Slot: s.Slot, Drain: s.Drain, ApplyingSince: s.ApplyingSince, RebootingSince: s.RebootingSince,
		Token: s.Token, FailedToken: s.FailedToken, ObservedAbandon: s.ObservedAbandon, Starts: s.Starts, LastSucceededAt: s.LastSucceededAt,
		Drift: s.Drift, Rollback: s.Rollback, NodeRecords: s.NodeRecords, Updaters: s.Updaters,
	}
	if s.Deadline != nil { // else nothing depends on it, and most updates wait without one
		k.WantedSince = s.WantedSince
	}
	return k
}

// sameFacts compares as the API server keeps it, which knows no parts of seconds.
func sameFacts(a, b *refitv1.MachineUpdateStatus) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// record writes what may not be lost of the status, if that has changed, before the status is written. It reports whether it has.
func (u *update) record(ctx context.Context) (bool, error) {
	next := durable(&u.mu.Status)
	due := recordDue(u.mu.Spec.Record, &next)
	blocked, done := u.blocksMove(), u.leavesNothing()
	if !due && blocked == moveBlocked(u.mu) && !done {
		return false, nil
	}
	changed := u.mu.DeepCopy()
	if done {
		controllerutil.RemoveFinalizer(changed, refitv1.UpdateFinalizer)
	}
	if due {
		changed.Spec.Record = u.nextRecord(next)
	}
	if blocked {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
	} else {
		delete(changed.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
	if err := u.Client.Patch(ctx, changed, client.MergeFromWithOptions(u.mu, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("write the record of MachineUpdate %s: %w", client.ObjectKeyFromObject(u.mu), err)
	}
	// The answer has the status as it was.
	u.mu.ObjectMeta, u.mu.Spec = changed.ObjectMeta, changed.Spec
	if due {
		u.mu.Status.RecordRevision = changed.Spec.Record.Revision
	}
	return due, nil
}

// leavesNothing reports whether the finalizer goes with the record: that says that the update has ended, and that nothing of refit's is left.
func (u *update) leavesNothing() bool {
	return finished(u.mu) && clean(&u.mu.Status) && u.mu.DeletionTimestamp.IsZero() && hasFinalizer(u.mu)
}

func (u *update) nextRecord(status refitv1.MachineUpdateStatus) *refitv1.UpdateRecord {
	next := &refitv1.UpdateRecord{
		Revision: u.mu.Status.RecordRevision + 1, MachineUID: u.machineUID(), FormerMachineUIDs: u.formerUIDs(), Status: status,
	}
	if r := u.mu.Spec.Record; r != nil {
		next.Revision = max(next.Revision, r.Revision+1)
	}
	return next
}

// complete writes a status once more whose record is written, and which was in conflict with a write in between: the reconciler restores a
// status that is behind, also that of a drift check which is about to write it. Unless there is a later record, or facts have changed, this
// status is what the record is about. Otherwise it returns the conflict. Who works on a node must not do that: whoever has written goes on
// with the node.
func (u *update) complete(ctx context.Context, conflict error) error {
	var now refitv1.MachineUpdate
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), &now); err != nil {
		return conflict
	}
	r, facts := now.Spec.Record, durable(&now.Status)
	if now.UID != u.mu.UID || now.Spec.Digest != u.mu.Spec.Digest || r == nil || r.Revision != u.mu.Status.RecordRevision ||
		!now.Behind() && !sameFacts(&facts, &r.Status) {
		return conflict
	}
	u.mu.ObjectMeta, u.mu.Spec = now.ObjectMeta, now.Spec
	return u.Client.Status().Update(ctx, u.mu)
}

// formerUIDs are those that the Machine had in management clusters from which it was moved.
func (u *update) formerUIDs() []types.UID { return u.mu.FormerMachineUIDs(u.machineUID()) }

// restore writes a status that is behind its record as the record says that it is.
func (u *update) restore(ctx context.Context) error {
	if !u.mu.Behind() {
		return nil
	}
	before := u.mu.Status
	u.mu.Status = u.mu.Restored().Status
	_ = u.ends(&before) // which is told next
	u.noteRestored(&before)
	u.mu.Status.RecordRevision = u.mu.Spec.Record.Revision
	u.setConditions(&u.mu.Status)
	if err := u.Client.Status().Update(ctx, u.mu); err != nil {
		return fmt.Errorf("restore the status of MachineUpdate %s: %w", client.ObjectKeyFromObject(u.mu), err)
	}
	u.exportSpans()
	return nil
}
