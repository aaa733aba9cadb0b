package changemanagement

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/revision"
)

// stillFor is for how long the status of a policy is not made again while nothing that it is made from has changed. Not all of that shows: what is old is
// forgotten.
const stillFor = 5 * time.Minute

// still is what the status of a policy was made from.
type still struct {
	policy  revision.Revision // as it was before that was written
	read    *Policy           // what was read of it, and of its calendars
	changes int64             // of what it counts
	// departures are told by another handler than changes are, which may come later.
	departures int64
	soaks      int // that have failed
}

// Watch has the status of a policy be made less often where nothing changes. It is for the time before the manager starts.
func (s *Status) Watch(ctx context.Context, informers index.Informers) error {
	return s.changes.Watch(ctx, informers, &clusterv1.Cluster{}, &clusterv1.Machine{}, &refitv1.MachineUpdate{}, &refitv1.PendingChange{})
}

// from returns what the status of a policy is about to be made from; false if that can't be told, or time has a say in it.
func (s *Status) from(policy stored, read *Policy) (still, bool) {
	changes, ok := s.changes.In(policy.GetNamespace())
	return still{revision.Of(policy), read, changes, s.Gate.departed.count(), len(s.Gate.soaks.of(policy.GetUID()))},
		ok && read.Deadline == nil && len(read.Gates) == 0 && read.Namespaces == nil && policy.GetDeletionTimestamp().IsZero()
}

// standsUntil returns until when a status counts that was just made. While a window is open, how much is left of it has a say.
func standsUntil(now time.Time, st *refitv1.ChangeManagementPolicyStatus) time.Time {
	until := now.Add(stillFor)
	switch {
	case *st.Open:
		return now
	case st.NextChange != nil && st.NextChange.Time.Before(until):
		return st.NextChange.Time
	}
	return until
}
