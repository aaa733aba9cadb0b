package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkClock returns a ClockError unless this clock agrees with the API server's. That one is asked by a lease that it does not
// keep: the creationTimestamp is its own, and no other right is needed than the one that an acquisition needs anyhow.
func (l *Locker) checkClock(ctx context.Context) error {
	probe := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace(), GenerateName: "refit-clock-"}}
	before := l.Clock.Now()
	if err := l.create(ctx, probe, client.DryRunAll); err != nil {
		return fmt.Errorf("ask the workload cluster's API server for its time: %w", err)
	}
	return agree(probe, before, l.Clock.Now())
}

// agree returns a ClockError unless what the API server has made between two instants of this clock says the same time. It is asked of a lease.
func agree(made *coordinationv1.Lease, before, after time.Time) error {
	server := made.CreationTimestamp.Time
	if server.IsZero() {
		return errors.New("ask the workload cluster's API server for its time: it did not tell")
	}
	// It has whole seconds, and was written at some time in between. The worst case counts.
	if ahead := after.Sub(server); ahead > Tolerance {
		return &ClockError{Ahead: ahead}
	}
	if behind := server.Add(time.Second).Sub(before); behind > Tolerance {
		return &ClockError{Ahead: -behind}
	}
	return nil
}

// elapsed returns how much time has passed, at most: a monotonic clock stands still while the machine sleeps, and the other
// one can be put back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
