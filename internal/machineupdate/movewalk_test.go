package machineupdate

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// movedUID is the UID that the Machine has after a move.
const movedUID types.UID = "uid-2"

// moveObjects does as clusterctl move does with what the machine owns: all has another UID, owner references follow, and no status is
// copied but that of the Machine, which Cluster API makes again. It returns what the MachineUpdate was before; nil if there is none.
func moveObjects(t require.TestingT, c client.Client) *refitv1.MachineUpdate {
	ctx := walkContext()
	again := func(obj client.Object, uid types.UID) {
		old := obj.DeepCopyObject().(client.Object)
		if old.SetFinalizers(nil); len(obj.GetFinalizers()) > 0 {
			require.NoError(t, c.Update(ctx, old))
		}
		require.NoError(t, c.Delete(ctx, old))
		obj.SetUID(uid)
		obj.SetResourceVersion("")
		owners := obj.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = movedUID
		}
		obj.SetOwnerReferences(owners)
		require.NoError(t, c.Create(ctx, obj))
	}
	var machine clusterv1.Machine
	require.NoError(t, c.Get(ctx, key, &machine))
	again(&machine, movedUID)
	var known refitv1.KnownHost
	err := c.Get(ctx, key, &known)
	require.NoError(t, client.IgnoreNotFound(err))
	if err == nil {
		again(&known, "known-2")
	}
	var mu refitv1.MachineUpdate
	err = c.Get(ctx, key, &mu)
	require.NoError(t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	before := mu.DeepCopy()
	mu.Status = refitv1.MachineUpdateStatus{}
	again(&mu, "update-2")
	return before
}

func (w *walkWorld) move() { moveObjects(w.t, w.base) }

func (w *walkWorld) pause(paused bool) {
	var cluster clusterv1.Cluster
	require.NoError(w.t, w.base.Get(w.ctx, client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &cluster))
	before := cluster.DeepCopy()
	cluster.Spec.Paused = &paused
	require.NoError(w.t, w.base.Patch(w.ctx, &cluster, client.MergeFrom(before)))
}

// TestMovedWalk has all be moved to another management cluster at each of the calls, without status, and whoever made the update killed.
// Where it was moved to, the update goes on: nothing runs twice, and nothing of refit's is left.
func TestMovedWalk(t *testing.T) { everywhere(t, movedBefore) }

// TestPausedAndMovedWalk has the Cluster paused from each of the calls on, and moved as soon as nothing blocks that, as clusterctl does.
func TestPausedAndMovedWalk(t *testing.T) {
	for name, path := range map[string]string{"restart": restartPath, "reboot": rebootPath} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := memoryDir(t)
			calls := survive(t, memoryDir(t), path, nothing, -1)
			for nth, c := range calls {
				if !walked(nth) || !c.writes && nth%3 != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s", nth, c), func(t *testing.T) { pauseAndMove(t, dir+"/"+strconv.Itoa(nth), path, nth) })
			}
		})
	}
}

func pauseAndMove(t *testing.T, root, path string, nth int) {
	t.Helper()
	w := newWalkWorld(walkContext(), t, root, path, newFault(pausedFrom, nth))
	defer w.node.end()
	w.ask()
	left := false
	for range maxRounds {
		w.round()
		mu := w.update()
		if left = !moveBlocked(mu) && (finished(mu) || mu.Status.Reason == refitv1.ReasonPaused); left {
			break
		}
	}
	require.True(t, left, "%s: %s", w.plan, w.update().Status.Message)
	require.Empty(t, w.holder(), "%s: the node's lease is not kept through the move", w.plan)
	steps := len(w.node.journal())

	w.move()
	w.leader = w.start()
	for range 3 {
		w.round()
	}
	require.Len(t, w.node.journal(), steps, "%s: nothing is done while the Cluster is paused", w.plan)
	w.pause(false)
	w.finish()
	w.requireDone()
}

// holder is who holds the node's lease.
func (w *walkWorld) holder() string {
	var l coordinationv1.Lease
	err := w.workload.Client.Get(w.ctx, leaseKey, &l)
	require.NoError(w.t, client.IgnoreNotFound(err))
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// patience is within how many rounds the update is done. Whoever was killed in another management cluster has left a lease that is taken
// when it has lapsed, and not before: that could still be worked under.
func (w *walkWorld) patience() int {
	if w.plan.fault == movedBefore {
		return 2 * maxRounds
	}
	return maxRounds
}
