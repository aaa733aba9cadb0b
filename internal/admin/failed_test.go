package admin

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestFailures(t *testing.T) {
	failed := func(change ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
		return update("a", refitv1.PhaseFailed, "NodeFailed", "the node reports: no", change...)
	}
	for name, c := range map[string]struct {
		update *refitv1.MachineUpdate
		fail   func(string, client.Object) error
		says   string
		// abandon: it can be given up, and not tried again.
		abandon bool
	}{
		"failed":  {update: failed()},
		"waiting": {update: update("a", refitv1.PhaseWaiting, refitv1.ReasonWindow, ""), says: "and it is Waiting (Window)"},
		"waiting with a node that may be half changed": {
			update: update("a", refitv1.PhaseWaiting, refitv1.ReasonSlot, "", func(mu *refitv1.MachineUpdate) { mu.Status.ApplyingSince = &metav1.Time{Time: start} }),
			says:   "and it is Waiting (Slot)", abandon: true,
		},
		"waiting after another try has begun": {
			update: update("a", refitv1.PhaseWaiting, refitv1.ReasonNode, "", func(mu *refitv1.MachineUpdate) {
				mu.Status.ApplyingSince, mu.Status.Attempts = &metav1.Time{Time: start}, 1
			}), says: "it is Waiting (Node)", abandon: true,
		},
		"waiting with a drained node": {
			update: update("a", refitv1.PhaseWaiting, refitv1.ReasonUnreachable, "", func(mu *refitv1.MachineUpdate) {
				mu.Status.Slot = &refitv1.Slot{TakenAt: metav1.Time{Time: start}}
			}), says: "it is Waiting (Unreachable)", abandon: true,
		},
		"waiting with nothing": {
			update: update("a", refitv1.PhaseWaiting, refitv1.ReasonWindow, ""), says: "it is Waiting (Window)",
		},
		"done": {update: update("a", refitv1.PhaseSucceeded, "", ""), says: "and it is Succeeded"},
		"other specs by now": {
			update: failed(func(mu *refitv1.MachineUpdate) { mu.Spec.Digest = "d2" }), says: "and it is Pending",
		},
		"of an earlier Machine": {
			update: failed(func(mu *refitv1.MachineUpdate) { mu.OwnerReferences[0].UID = "before" }), says: "MachineUpdate fleet/a is of an earlier Machine",
		},
		"none": {says: "there is no update of Machine fleet/a"},
		"not read": {update: failed(), says: "read MachineUpdate fleet/a: timeout", fail: func(verb string, _ client.Object) error {
			return errors.New("timeout")
		}},
		"written at the same time": {update: failed(), says: "has changed at this moment", fail: func(verb string, _ client.Object) error {
			if verb == "patch" {
				return apierrors.NewConflict(leases, "a", errors.New("modified"))
			}
			return nil
		}},
		"not written": {update: failed(), says: "annotate MachineUpdate fleet/a: forbidden", fail: func(verb string, _ client.Object) error {
			if verb == "patch" {
				return errors.New("forbidden")
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a"))
			if c.update != nil {
				require.NoError(t, w.Create(t.Context(), c.update))
				require.NoError(t, w.Status().Update(t.Context(), c.update))
			}
			m := w.machine()
			w.fail = c.fail
			f := &Failures{Client: w, Clock: w.clock, Out: &w.out, Admin: "alice"}
			err := f.Retry(t.Context(), m)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				if !c.abandon {
					require.ErrorContains(t, f.Abandon(t.Context(), m), c.says)
				} else {
					require.NoError(t, f.Abandon(t.Context(), m))
					return
				}
				require.Empty(t, w.said())
				return
			}
			require.NoError(t, err)
			require.Equal(t, "refit was asked to try the update of Machine fleet/a again: it plans again, and waits for window, slot and lease as for any update.\n"+
				"See how it goes with: refit status -n fleet a --watch\n", w.said())
			var mu refitv1.MachineUpdate
			key := types.NamespacedName{Namespace: "fleet", Name: "a"}
			require.NoError(t, w.Get(t.Context(), key, &mu))
			require.Equal(t, map[string]string{refitv1.RetryAnnotation: "2026-10-03T20:00:00Z alice"}, mu.Annotations)
			require.NoError(t, f.Abandon(t.Context(), m))
			require.Contains(t, w.said(), "refit was asked to abandon the update of Machine fleet/a: it releases its slot")
			mu = refitv1.MachineUpdate{}
			require.NoError(t, w.Get(t.Context(), key, &mu))
			require.Equal(t, map[string]string{refitv1.AbandonAnnotation: "2026-10-03T20:00:00Z alice"}, mu.Annotations, "the last word counts")
		})
	}
}
