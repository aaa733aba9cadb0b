package machineupdate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
)

// countedDials counts how often a node is dialled.
type countedDials struct {
	remote.Dialer
	n int
}

func (d *countedDials) Dial(ctx context.Context, to remote.Target) (remote.Conn, error) {
	d.n++
	return d.Dialer.Dial(ctx, to)
}

// silent returns a world whose node has not answered for ten minutes, and whose update is another process's from now on, which knows what is written.
func silent(t *testing.T) (*world, *countedDials) {
	w := newWorld(t)
	w.ask()
	w.node.dialErr = errRefused
	w.reconcile()
	w.clock.Step(10 * time.Minute)
	for _, known := range w.reconciler.byUpdate() {
		known.Clear()
	}
	d := &countedDials{Dialer: w.reconciler.Dialer}
	w.reconciler.Dialer = d
	return w, d
}

// TestWhoTakesOverAsksTheSilentLater, each at a time of its own, and then as seldom as the one before.
func TestWhoTakesOverAsksTheSilentLater(t *testing.T) {
	w, d := silent(t)
	after := w.reconcile().RequeueAfter
	require.Positive(t, after)
	require.LessOrEqual(t, after, retrySilent)
	require.Zero(t, d.n)
	w.clock.Step(after - time.Second)
	require.Equal(t, time.Second, w.reconcile().RequeueAfter)
	w.clock.Step(time.Second)
	require.Equal(t, retrySilent, w.reconcile().RequeueAfter)
	require.Equal(t, 1, d.n)
	w.reconcile()
	require.Equal(t, 2, d.n, "whoever wakes it is heard from now on")
}

// TestTheSilentAreAskedThoughLeadersChange, each of which goes after half a minute.
func TestTheSilentAreAskedThoughLeadersChange(t *testing.T) {
	w, d := silent(t)
	for range 5 {
		after := w.reconcile().RequeueAfter
		if after <= 30*time.Second {
			w.clock.Step(after)
			w.reconcile()
			break
		}
		w.clock.Step(30 * time.Second)
		for _, known := range w.reconciler.byUpdate() {
			known.Clear()
		}
	}
	require.Equal(t, 1, d.n)
}

// TestWhoTakesOverHearsWhatIsAsked of an update whose node was silent, at once.
func TestWhoTakesOverHearsWhatIsAsked(t *testing.T) {
	annotated := func(w *world, name string) {
		mu := w.update()
		metav1.SetMetaDataAnnotation(&mu.ObjectMeta, name, "1")
		require.NoError(w.t, w.Update(w.t.Context(), mu))
	}
	for name, tc := range map[string]struct {
		is    func(*world)
		dials int
	}{
		"another try": {func(w *world) { annotated(w, refitv1.RetryAnnotation) }, 1},
		"other specs": {func(w *world) { w.change(); w.ask() }, 1},
		"nothing any more": {func(w *world) {
			var m clusterv1.Machine
			require.NoError(w.t, w.Get(w.t.Context(), key, &m))
			delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
			require.NoError(w.t, w.Update(w.t.Context(), &m))
		}, 0},
		"to wait": {func(w *world) {
			var c clusterv1.Cluster
			require.NoError(w.t, w.Get(w.t.Context(), ofC1, &c))
			c.Spec.Paused = ptr.To(true)
			require.NoError(w.t, w.Update(w.t.Context(), &c))
		}, 0},
		"nothing, but its node may be half changed": {func(w *world) {
			mu := w.update()
			mu.Status.ApplyingSince = &metav1.Time{Time: w.clock.Now()}
			require.NoError(w.t, w.Status().Update(w.t.Context(), mu))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := silent(t)
			tc.is(w)
			w.reconcile()
			require.Equal(t, tc.dials, d.n)
			at, _ := w.reconciler.firstLooks.Load(key)
			require.Zero(t, at)
		})
	}
}
