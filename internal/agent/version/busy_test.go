package version

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

// TestAPlanWaitsForThePackageManager has nobody be drained for a release that can't be installed yet.
func TestAPlanWaitsForThePackageManager(t *testing.T) {
	w := newWorld(t)
	w.releases.busy = 1000
	a := w.ask(oldVersion, newVersion)
	require.Contains(t, a.Blocked, "v1.36.3 can't be installed yet: /var/cache/apt/archives/lock is held by process 7 (apt-get)")
	require.Contains(t, a.Blocked, "nothing is begun before that ends")
	require.Empty(t, a.Operation)
	require.Empty(t, w.releases.calls)

	w.releases.busy = 3
	a = w.ask(oldVersion, newVersion)
	require.Empty(t, a.Blocked, "it has ended meanwhile")
	require.Equal(t, node.Write, a.Operation)

	w.releases.busy = 1000
	q := w.question(oldVersion, newVersion)
	q.UnderWay = true
	a, err := w.kind.Plan(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, a.Blocked, "a run waits by itself")
}

// TestLocksThatDoNotComeBackAreNoFailureOfGoingBack has the node be as it was, which people are told beside the locks.
func TestLocksThatDoNotComeBackAreNoFailureOfGoingBack(t *testing.T) {
	w := newWorld(t)
	c := w.change(newVersion)
	w.make(c)
	w.releases.lockless = []string{"v1.36.1 kubelet kubectl"}
	err := w.kind.Undo(t.Context(), c)
	var remark *kind.Remark
	require.ErrorAs(t, err, &remark)
	var locks *release.LocksError
	require.ErrorAs(t, err, &locks)
	require.ErrorContains(t, err, "it is tried again")

	w = newWorld(t)
	c = w.change(newVersion)
	w.make(c)
	w.releases.lockless = []string{"v1.36.1 kubeadm"}
	w.remove("/releases/" + oldVersion + "/kubelet")
	err = w.kind.Undo(t.Context(), c)
	require.Error(t, err)
	require.False(t, errors.As(err, new(*kind.Remark)), "the kubelet is not back")
}
