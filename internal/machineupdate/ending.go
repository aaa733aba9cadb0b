package machineupdate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// A write that ends an update may be made and not answered. So what a server is about to write is kept until it was told of: when the write
// is answered, when the update is read next and shows it, or when its status is restored from its record.

// ending is the end of an update. The zero value is none.
type ending struct {
	phase refitv1.Phase
	at    int64
}

func endingOf(s *refitv1.MachineUpdateStatus) ending {
	if !ended(s.Phase) || s.FinishedAt == nil {
		return ending{}
	}
	return ending{s.Phase, s.FinishedAt.Unix()}
}

// ends reports whether the update ends with the status that it is about to have, and keeps that until it is told. One that was moved here has
// no status before, and ended elsewhere.
func (u *update) ends(before *refitv1.MachineUpdateStatus) bool {
	end := endingOf(&u.mu.Status)
	if before.Phase == "" || end == (ending{}) || end == endingOf(before) {
		return false
	}
	u.endings.Store(client.ObjectKeyFromObject(u.mu), end)
	return true
}

// tellUntold tells an end that was kept and is written.
func (u *update) tellUntold(ctx context.Context) {
	if end, ok := u.endings.Load(client.ObjectKeyFromObject(u.mu)); ok && end == endingOf(&u.mu.Status) {
		u.tellEnd(ctx)
	}
}

// tellEnd tells the end that the status shows.
func (u *update) tellEnd(ctx context.Context) {
	u.endings.Delete(client.ObjectKeyFromObject(u.mu))
	s, at := &u.mu.Status, u.atMachine(ctx)
	switch {
	case s.Phase == refitv1.PhaseFailed && s.Reason == abandoned:
		at.tellAbandoned()
	case s.Phase == refitv1.PhaseFailed:
		u.Metrics.finished(s, u.runAtEnd())
		at.event(corev1.EventTypeWarning, "InPlaceUpdateFailed", "Update", s.Message)
	case s.FinishedAt.Equal(s.LastSucceededAt):
		u.Metrics.finished(s, u.runAtEnd())
		at.event(corev1.EventTypeNormal, "InPlaceUpdateSucceeded", "Update", s.Message)
	default: // the node has what it had before
		at.tellWithdrawn("the update was withdrawn: " + s.Message)
	}
}

// atMachine returns the update as one that tells about itself at its Machine, also before that was read.
func (u *update) atMachine(ctx context.Context) *update {
	if u.regarding != nil {
		return u
	}
	at := &update{Reconciler: u.Reconciler, mu: u.mu}
	machine := &clusterv1.Machine{}
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), machine); err == nil && controlledBy(u.mu, machine) {
		at.regarding = machine
	}
	return at
}
