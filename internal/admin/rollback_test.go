package admin

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// acting is a client with a refit that acts upon a request as soon as it is there.
type acting struct {
	client.Client
	state refitv1.RollbackState
}

func (a acting) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := a.Client.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	mu := obj.DeepCopyObject().(*refitv1.MachineUpdate)
	mu.Status.Rollback = &refitv1.RollbackStatus{Request: mu.RollbackRequest(), State: a.state, Message: "it is as it says"}
	return a.Client.Status().Update(ctx, mu)
}

func TestRollback(t *testing.T) {
	const request = "2026-10-03T20:00:00Z alice"
	failed := func() *refitv1.MachineUpdate {
		mu := update("a", refitv1.PhaseFailed, "NodeFailed", "the node reports: no")
		mu.Annotations = map[string]string{refitv1.RetryAnnotation: "1", refitv1.AbandonAnnotation: "1"}
		return mu
	}
	for name, c := range map[string]struct {
		update  *refitv1.MachineUpdate
		state   refitv1.RollbackState // what refit makes of it
		timeout time.Duration
		fail    func(verb string, obj client.Object) error
		prints  string
		says    string
	}{
		"written": {
			update: failed(), state: refitv1.RollbackWritten, timeout: time.Minute,
			prints: "it is as it says.\nrefit brings it to the node, and waits for window, slot and lease as for any update. See how it goes with: refit status -n fleet a --watch\n",
		},
		"refused":          {update: failed(), state: refitv1.RollbackRefused, timeout: time.Minute, says: "it is as it says"},
		"not acted upon":   {update: failed(), state: refitv1.RollbackWriting, timeout: time.Minute, says: "refit has not acted on it within 1m0s"},
		"not possible now": {update: failed(), state: refitv1.RollbackPending, timeout: time.Minute, says: "refit has not acted on it within 1m0s: it is as it says; it does when"},
		"not waited for": {
			update: failed(), state: refitv1.RollbackWriting,
			prints: "refit was asked to write what the owner of Machine fleet/a wants now. Whether it has, .status.rollback of MachineUpdate fleet/a shows.\n",
		},
		"one that waits": {update: update("a", refitv1.PhaseWaiting, refitv1.ReasonBlocked, ""), state: refitv1.RollbackRefused, timeout: time.Minute, says: "it is as it says"},
		"done":           {update: update("a", refitv1.PhaseSucceeded, "", ""), says: "the update of Machine fleet/a has succeeded"},
		"none":           {says: "there is no update of Machine fleet/a"},
		"written at the same time": {update: failed(), says: "has changed at this moment", fail: func(verb string, _ client.Object) error {
			if verb == "patch" {
				return apierrors.NewConflict(leases, "a", errors.New("modified"))
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a"))
			if c.update != nil {
				require.NoError(t, w.Create(t.Context(), c.update))
				c.update.Status.Rollback = &refitv1.RollbackStatus{Request: "before", State: refitv1.RollbackRefused, Message: "an earlier one"}
				require.NoError(t, w.Status().Update(t.Context(), c.update))
			}
			m := w.machine()
			key := types.NamespacedName{Namespace: "fleet", Name: "a"}
			w.fail = c.fail
			r := &Rollback{Client: acting{w, c.state}, Clock: w.clock, Out: &w.out, Admin: "alice", Timeout: c.timeout}
			err := r.Ask(t.Context(), m)
			require.Equal(t, c.prints, w.said())
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
			} else {
				require.NoError(t, err)
			}
			if c.state == "" {
				return
			}
			var mu refitv1.MachineUpdate
			require.NoError(t, w.Get(t.Context(), key, &mu))
			require.Equal(t, map[string]string{refitv1.RollbackAnnotation: request}, mu.Annotations)
		})
	}
}
