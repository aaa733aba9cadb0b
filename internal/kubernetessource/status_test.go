package kubernetessource

import (
	"testing"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// show has the status of the source a shown.
func show(w *world, s *Status) *refitv1.KubernetesSourceStatus {
	w.t.Helper()
	result, err := s.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}})
	require.NoError(w.t, err)
	require.Equal(w.t, statusRefresh, result.RequeueAfter)
	return &w.get("a").Status
}

func newStatus(t *testing.T, objects ...client.Object) (*world, *Status, *events.FakeRecorder) {
	w, recorder := newWorld(t, objects...), events.NewFakeRecorder(10)
	return w, &Status{Client: w, Recorder: recorder}, recorder
}

func TestStatus(t *testing.T) {
	control := map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	w, s, recorder := newStatus(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil),
		machine("w1", "c1", nil), machine("w2", "c1", nil), machine("cp1", "c1", control), machine("w3", "c2", nil), machine("w4", "gone", nil),
		source("a", clusters(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole), named("v1.36.2", "v1.36.3")))
	st := show(w, s)
	require.EqualValues(t, 1, st.ObservedGeneration)
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.EqualValues(t, 2, *st.Versions)
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
	require.Empty(t, recorder.Events, "that it can be read is no news")
	before := w.get("a").ResourceVersion
	show(w, s)
	require.Equal(t, before, w.get("a").ResourceVersion, "what has not changed is not written")
}

func TestStatusOfASourceThatCanNotBeRead(t *testing.T) {
	w, s, recorder := newStatus(t, source("a", unreadable))
	c := apimeta.FindStatusCondition(show(w, s).Conditions, refitv1.ReadyCondition)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, reasonInvalid, c.Reason)
	require.Contains(t, c.Message, `"zypper" is not known`)
	require.Regexp(t, `^Warning InvalidSource the source can't be read`, <-recorder.Events)
	show(w, s)
	require.Empty(t, recorder.Events, "once is enough")
	w.change("a", func(s *spec) { s.Packages.Manager = refitv1.DNFPackages })
	st := show(w, s)
	require.EqualValues(t, 2, st.ObservedGeneration)
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
	require.Equal(t, "Normal Read the source can be read", <-recorder.Events)
}

func TestStatusNeedsToKnow(t *testing.T) {
	w, s, _ := newStatus(t, source("a"))
	require.NoError(t, w.Delete(t.Context(), w.get("a")))
	result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}})
	require.NoError(t, err)
	require.Zero(t, result)
	w.down = true
	_, err = s.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}})
	require.ErrorIs(t, err, errDown)
}
