package machineupdate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// knocker is a dialer that can knock, and counts both. Its node answers as it dials.
type knocker struct {
	countedDials
	w     *world
	knock int
	last  remote.Target
}

func (k *knocker) Knock(_ context.Context, t remote.Target) error {
	k.knock, k.last = k.knock+1, t
	return k.w.node.dialErr
}

// countedReads counts what is read of one object.
type countedReads struct {
	client.Reader
	n int
}

func (r *countedReads) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r.n++
	return r.Reader.Get(ctx, key, obj, opts...)
}

// dark returns a world whose node has not answered, and how long until it is tried again.
func dark(t *testing.T) (*world, *knocker, time.Duration) {
	w := newWorld(t)
	k := &knocker{countedDials: countedDials{Dialer: w.reconciler.Dialer}, w: w}
	w.reconciler.Dialer = k
	w.ask()
	w.node.dialErr = errRefused
	after := w.reconcile().RequeueAfter
	require.Equal(t, 1, k.n)
	return w, k, after
}

// TestADarkNodeIsKnockedAt without a request, as seldom as it would be looked at, and looked at now and then.
func TestADarkNodeIsKnockedAt(t *testing.T) {
	w, k, after := dark(t)
	w.requireWaiting(refitv1.ReasonUnreachable, "")
	began, looked := w.clock.Now(), k.n
	live := &countedReads{Reader: w.reconciler.Live}
	w.reconciler.Live = live
	for k.n == looked {
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
		require.Positive(t, after)
		require.LessOrEqual(t, after, retrySilent)
		if k.n == looked {
			require.Zero(t, live.n)
		}
	}
	require.GreaterOrEqual(t, w.clock.Since(began), knocksFor)
	require.Greater(t, k.knock, 5)
	require.Empty(t, k.last.PrivateKey)
	require.Empty(t, k.last.Signers)
	require.Nil(t, k.last.Certificates)
	w.requireWaiting(refitv1.ReasonUnreachable, "")
}

// TestANodeThatAnswersIsLookedAt at once.
func TestANodeThatAnswersIsLookedAt(t *testing.T) {
	w, k, after := dark(t)
	for range 3 {
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
	}
	require.Equal(t, 3, k.knock)
	w.node.dialErr = nil
	w.clock.Step(after)
	require.Equal(t, soon, w.reconcile().RequeueAfter)
	require.Equal(t, 1, k.n)
	w.reconcile()
	require.Equal(t, 2, k.n)
	require.NotEqual(t, refitv1.ReasonUnreachable, w.update().Status.Reason)
}

// TestWhatWakesADarkNodesUpdateHasItLookedAt: whoever comes before its time, or changes something that has a say.
func TestWhatWakesADarkNodesUpdateHasItLookedAt(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another try": func(w *world) {
			mu := w.update()
			metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.RetryAnnotation, "1")
			require.NoError(w.t, w.Update(w.t.Context(), mu))
		},
		"the Machine": func(w *world) {
			var m clusterv1.Machine
			require.NoError(w.t, w.Get(w.t.Context(), key, &m))
			m.Status.Addresses[0].Address = "192.0.2.99"
			require.NoError(w.t, w.Update(w.t.Context(), &m))
		},
		"the way to the node": func(w *world) {
			var all refitv1.NodeAccessList
			require.NoError(w.t, w.List(w.t.Context(), &all))
			all.Items[0].Spec.SSH.Port = 2222
			require.NoError(w.t, w.Update(w.t.Context(), &all.Items[0]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, k, after := dark(t)
			for range 3 {
				w.clock.Step(after)
				after = w.reconcile().RequeueAfter
			}
			require.Equal(t, 1, k.n)
			change(w)
			w.clock.Step(after)
			w.reconcile()
			require.Equal(t, 2, k.n)
		})
	}
	t.Run("something else, before its time", func(t *testing.T) {
		w, k, after := dark(t)
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
		w.clock.Step(after - time.Second)
		w.reconcile()
		require.Equal(t, 2, k.n)
	})
	t.Run("a policy that closes", func(t *testing.T) {
		w, k, after := dark(t)
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
		require.NoError(t, w.Create(t.Context(), nightly()))
		w.readPolicies()
		w.clock.Step(after)
		w.reconcile()
		require.Equal(t, 2, k.n)
	})
}

// TestNoNodeBehindAJumpHostIsKnockedAt: that takes the jump host's credentials.
func TestNoNodeBehindAJumpHostIsKnockedAt(t *testing.T) {
	w, k, after := dark(t)
	for _, known := range w.reconciler.byUpdate() {
		known.Clear()
	}
	u := &update{Reconciler: w.reconciler, mu: w.update()}
	u.login.access = &nodeaccess.Access{Target: remote.Target{Jump: &remote.Target{}}}
	u.noteDark(&wait{reason: refitv1.ReasonUnreachable}, after)
	w.clock.Step(after)
	w.reconcile()
	require.Zero(t, k.knock)
}
