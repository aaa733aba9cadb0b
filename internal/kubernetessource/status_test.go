package kubernetessource

import (
	"testing"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/internal/resync"
)

// show has the status of the source a shown.
func show(w *world, s *Status) *refitv1.KubernetesSourceStatus {
	w.T.Helper()
	require.Greater(w.T, w.Reconcile(s, "a").RequeueAfter, resync.Every/2, "what has changed wakes it")
	return &w.Policy("a").Status
}

func newStatus(t *testing.T, objects ...client.Object) (*world, *Status) {
	w := newWorld(t, objects...)
	return w, &Status{Client: w, Recorder: w.Events}
}

func TestStatus(t *testing.T) {
	w, s := newStatus(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil),
		machine("w1", "c1"), machine("w2", "c1"), machine("cp1", "c1", policykindtest.ControlPlane), machine("w3", "c2"), machine("w4", "gone"),
		source("a", clusters(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole), named("v1.36.2", "v1.36.3")))
	st := show(w, s)
	require.EqualValues(t, 1, st.ObservedGeneration)
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.EqualValues(t, 2, *st.Versions)
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
	w.RequireNoEvent("that it can be read is no news")
	show(w, s)
	require.Equal(t, 1, w.StatusWrites, "what has not changed is not written")
}

func TestStatusOfASourceThatCanNotBeRead(t *testing.T) {
	w, s := newStatus(t, source("a", unreadable))
	c := apimeta.FindStatusCondition(show(w, s).Conditions, refitv1.ReadyCondition)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, reasonInvalid, c.Reason)
	require.Contains(t, c.Message, `"zypper" is not known`)
	w.RequireEvent(`^Warning InvalidSource the source can't be read`)
	show(w, s)
	w.RequireNoEvent("once is enough")
	w.Change("a", func(s *spec) { s.Packages.Manager = refitv1.DNFPackages })
	st := show(w, s)
	require.EqualValues(t, 2, st.ObservedGeneration)
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
	w.RequireEvent("^Normal Read the source can be read$")
}

func TestStatusNeedsToKnow(t *testing.T) {
	w, s := newStatus(t, source("a"))
	require.NoError(t, w.Delete(t.Context(), w.Policy("a")))
	require.Zero(t, w.Reconcile(s, "a"))
	w.Down = true
	_, err := s.Reconcile(t.Context(), policykindtest.Request("a"))
	require.ErrorIs(t, err, policykindtest.ErrDown)
}
