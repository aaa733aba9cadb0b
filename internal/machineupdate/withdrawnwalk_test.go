package machineupdate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
)

// withdraw takes Cluster API's annotations off the machine.
func (w *walkWorld) withdraw() {
	var m clusterv1.Machine
	require.NoError(w.t, w.base.Get(w.ctx, key, &m))
	before := m.DeepCopy()
	for name := range marks() {
		delete(m.Annotations, name)
	}
	require.NoError(w.t, w.base.Patch(w.ctx, &m, client.MergeFrom(before)))
}

// TestWithdrawnWalk has Cluster API no longer ask for an update from each of the calls on. The update ends by itself, nothing of refit's is
// left but a cordon of a node that may be half changed, and what it says of the node is true.
func TestWithdrawnWalk(t *testing.T) {
	for name, path := range map[string]string{"restart": restartPath, "reboot": rebootPath} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := memoryDir(t)
			ends := map[string]int{}
			calls := survive(t, memoryDir(t), path, nothing, -1)
			for nth, c := range calls {
				if !walked(nth) {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s", nth, c), func(t *testing.T) {
					ends[endWithdrawn(t, dir+"/"+strconv.Itoa(nth), path, nth)]++
				})
			}
			t.Logf("%d calls; how updates have ended: %v", len(calls), ends)
			if testing.Short() {
				return // too few to have seen each end
			}
			require.Positive(t, ends["gone"])
			require.Positive(t, ends[string(refitv1.PhaseSucceeded)])
			if path == rebootPath { // what ends in the reconciliation in which it began is proven, and has succeeded
				require.Positive(t, ends[refitv1.ReasonWithdrawn])
			}
		})
	}
}

// endWithdrawn has the update be made until it is withdrawn at the nth call, and returns how it has ended.
func endWithdrawn(t *testing.T, root, path string, nth int) string {
	t.Helper()
	w := newWalkWorld(walkContext(), t, root, path, newFault(withdrawnFrom, nth))
	defer w.node.end()
	w.ask()
	var list refitv1.MachineUpdateList
	for range maxRounds {
		w.round()
		require.NoError(t, w.base.List(w.ctx, &list))
		if len(list.Items) == 0 || finished(&list.Items[0]) {
			break
		}
	}
	_, err := os.Stat(filepath.Join(w.node.root, path))
	written := err == nil
	if len(list.Items) == 0 {
		require.False(t, written)
		w.requireNothingOfRefits(false)
		return "gone"
	}
	st := list.Items[0].Status
	require.True(t, finished(&list.Items[0]), "%s: %s", st.Phase, st.Message)
	if st.Phase == refitv1.PhaseSucceeded {
		require.True(t, written)
		w.requireNothingOfRefits(false)
		return string(st.Phase)
	}
	require.Equal(t, refitv1.ReasonWithdrawn, st.Reason, st.Message)
	w.requireNothingOfRefits(st.ApplyingSince != nil)
	return st.Reason
}

func (w *walkWorld) requireNothingOfRefits(cordoned bool) {
	n := w.theNode()
	require.Equal(w.t, cordoned, n.Spec.Unschedulable)
	delete(n.Annotations, drain.CordonedAnnotation)
	require.Empty(w.t, n.Annotations)
	require.Empty(w.t, n.Labels)
	var machine clusterv1.Machine
	require.NoError(w.t, w.base.Get(w.ctx, key, &machine))
	require.Empty(w.t, machine.Annotations)
	var l coordinationv1.Lease
	if err := w.workload.Client.Get(w.ctx, leaseKey, &l); client.IgnoreNotFound(err) != nil || err == nil {
		require.NoError(w.t, err)
		require.Empty(w.t, ptr.Deref(l.Spec.HolderIdentity, ""))
	}
}
