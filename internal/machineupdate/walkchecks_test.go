package machineupdate

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/protection"
)

// reached notes what is done to the node too early.
func (w *walkWorld) reached(what string) {
	n := w.theNode()
	pods, err := w.workload.Clientset.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	var machine clusterv1.Machine
	require.NoError(w.t, w.base.Get(w.ctx, key, &machine))
	if len(pods.Items) > 0 || !n.Spec.Unschedulable || n.Annotations[protection.UpdatingAnnotation] != string(machine.UID) || machine.Annotations[protection.AddedAnnotation] == "" {
		w.early = append(w.early, fmt.Sprintf("%s: %d pods, unschedulable %t, Node %v, Machine %s %v",
			what, len(pods.Items), n.Spec.Unschedulable, n.Annotations, machine.UID, machine.Annotations))
	}
}

// requireDone requires that the update was made once, and that nothing of refit's is left.
func (w *walkWorld) requireDone() {
	where := w.plan.String()
	w.requireOnce(where)
	content, err := os.ReadFile(filepath.Join(w.node.root, w.path))
	require.NoError(w.t, err, where)
	require.Equal(w.t, secretContent+"\n", string(content), where)
	w.node.requireClean(where)
	w.requireLeft(where)
}

// requireOnce requires that the node did each step once, after it was drained.
func (w *walkWorld) requireOnce(where string) {
	require.Empty(w.t, w.early, where)
	done, claimed := map[string]int{}, int64(0)
	for _, e := range w.node.journal() {
		switch e.Event {
		case "claimed":
			require.Greater(w.t, e.Token, claimed, "%s: a token that is not the highest was claimed", where)
			claimed = e.Token
		case "run-started", "step-done", "run-done":
			done[e.Event+" "+e.Step]++
		case "step-failed", "rolled-back":
			require.Fail(w.t, "a step failed", "%s: %+v", where, e)
		}
	}
	require.Greater(w.t, len(done), 5, where)
	for what, n := range done {
		require.Equal(w.t, 1, n, "%s: %s", where, what)
	}
	want, boots := "restart app.service", 1
	if w.path == rebootPath {
		want, boots = "reboot", 2
	}
	require.Equal(w.t, []string{want}, w.node.units, where)
	require.Equal(w.t, boots, w.node.boots, where)
}

// requireLeft requires that nothing of refit's is left in either cluster.
func (w *walkWorld) requireLeft(where string) {
	n := w.theNode()
	require.False(w.t, n.Spec.Unschedulable, where)
	require.NotContains(w.t, n.Annotations, drain.CordonedAnnotation, where)
	require.Empty(w.t, n.Annotations, where)
	require.Empty(w.t, n.Labels, where)
	var machine clusterv1.Machine
	require.NoError(w.t, w.base.Get(w.ctx, key, &machine))
	require.Equal(w.t, marks(), machine.Annotations, where)
	var l coordinationv1.Lease
	require.NoError(w.t, w.workload.Client.Get(w.ctx, leaseKey, &l), where)
	require.Contains(w.t, []string{"", foreignHolder}, ptr.Deref(l.Spec.HolderIdentity, "?"), where)
	st := w.update().Restored().Status
	require.Equal(w.t, refitv1.PhaseSucceeded, st.Phase, where)
	require.Nil(w.t, st.Slot, where)
	require.Nil(w.t, st.Node, where)
	require.Nil(w.t, st.Drain, where)
	require.Nil(w.t, st.ApplyingSince, where)
	require.Nil(w.t, st.RebootingSince, where)
}
