package machineupdate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestProgressIsWrittenWithWhatComesNext, or by itself when nothing was for a while.
func TestProgressIsWrittenWithWhatComesNext(t *testing.T) {
	w := newWorld(t)
	w.ask()
	u := &update{Reconciler: w.reconciler, mu: w.update(), writtenAt: w.clock.Now()}
	step := func(step string) {
		require.NoError(t, u.enter(t.Context(), refitv1.PhasePending, step, "a message"))
	}
	step("one")
	require.Empty(t, w.update().Status.Step)
	require.NoError(t, u.told(t.Context()))
	require.Equal(t, "one", w.update().Status.Step)
	version := w.update().ResourceVersion
	require.NoError(t, u.told(t.Context()))
	require.Equal(t, version, w.update().ResourceVersion, "there is nothing left to write")

	step("two")
	w.clock.Step(tellEvery)
	require.Equal(t, "one", w.update().Status.Step)
	step("three")
	require.Equal(t, "three", w.update().Status.Step)
}

// TestWhatWaitsForASessionShowsThatItBegins, since it may wait for long.
func TestWhatWaitsForASessionShowsThatItBegins(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.reconciler.Sessions = NewSessions(1, 1) // which nobody has started
	w.reconcile()
	st := w.requirePhase(refitv1.PhasePending)
	require.Equal(t, w.update().Spec.Digest, st.ObservedDigest)
	require.Empty(t, w.node.calls)
}

// TestAHoldThatTheFirstLookDoesNotKnow of comes after the Machine was read, and before its node's lease is taken: the look after that finds it.
func TestAHoldThatTheFirstLookDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	w.ask()
	held := false
	w.reconciler.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if u, ok := obj.(*unstructured.Unstructured); ok && u.GetKind() == "Machine" && !held {
				held = true
				w.machine(func(m *clusterv1.Machine) {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, refitv1.HoldAnnotation, "a failing disk")
				})
			}
			return err
		},
	})
	w.reconcile()
	require.True(t, held)
	w.requireWaiting(refitv1.ReasonHold, "a failing disk")
	require.Empty(t, w.node.calls)
	require.Empty(t, *w.leaseOf().Spec.HolderIdentity, "it is released again")
}
