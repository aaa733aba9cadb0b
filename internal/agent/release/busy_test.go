package release

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lock locks a file of the node, as another program would, until the test ends or the function is called.
func (x *fixture) lock(p string) (unlock func()) {
	x.Helper()
	x.PutMode(p, "", 0o640)
	f, err := os.OpenFile(x.Path(p), os.O_RDWR, 0)
	require.NoError(x, err)
	x.Cleanup(func() { _ = f.Close() })
	// One of the open file, since those of the test's own process are not in its way.
	require.NoError(x, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	return func() { _ = f.Close() }
}

// waits does not wait either, and calls a function when somebody has waited so often.
type waits struct {
	skippedClock
	left int
	then func()
}

func (w *waits) Wait(ctx context.Context, d time.Duration) error {
	if w.left--; w.left == 0 {
		w.then()
	}
	return w.skippedClock.Wait(ctx, d)
}

// TestAPTWaitsForEveryLock has apt-daily download, and others look at packages, when the node is drained already.
func TestAPTWaitsForEveryLock(t *testing.T) {
	for _, p := range lockFiles[debs] {
		x, src := newAPT(t)
		require.NoError(t, x.stage(src))
		x.calls()
		unlock := x.lock(p)
		require.Contains(t, x.find(target).Busy, p+" is held by a process", p)
		err := x.install(target, kubelet)
		require.ErrorContains(t, err, "somebody else has had the package manager for 5m0s: "+p+" is held by", p)
		require.Empty(t, shows(x.calls(), "apt-get"), p)
		require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions(), p)

		clock := &waits{left: 3, then: unlock}
		x.store.host.Clock = clock
		require.NoError(t, x.install(target, kubelet), p)
		require.LessOrEqual(t, clock.left, 0, p)
		require.Empty(t, x.find(target).Busy, p)
		require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds(), p)
	}
}

// TestGoingBackWaitsForLocksToo has somebody take a lock when the node goes back.
func TestGoingBackWaitsForLocksToo(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	clock := &waits{left: 30, then: x.lock("/var/cache/apt/archives/lock")}
	x.store.host.Clock = clock
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
}

// TestStagingWaitsForTheListsOfTheNode has apt-daily ask the node's own repositories.
func TestStagingWaitsForTheListsOfTheNode(t *testing.T) {
	x, src := newAPT(t)
	src.Packages.Repository, src.Packages.Key = "", ""
	clock := &waits{left: 2, then: x.lock(listsLock)}
	x.store.host.Clock = clock
	require.NoError(t, x.stage(src))
	require.LessOrEqual(t, clock.left, 0)

	x, src = newAPT(t)
	x.lock(listsLock)
	require.NoError(t, x.stage(src), "a source's own repository has lists of its own")
}

func TestWhoHasDNF(t *testing.T) {
	x := newFixture(t)
	require.Empty(t, x.store.busy(rpms))
	x.Put("/var/lib/dnf/rpmdb_lock.pid", "4711")
	require.Empty(t, x.store.busy(rpms), "the process was killed")
	x.Put("/proc/4711/comm", "dnf-automatic\n")
	require.Equal(t, "/var/lib/dnf/rpmdb_lock.pid is held by process 4711 (dnf-automatic)", x.store.busy(rpms))
	require.Empty(t, x.store.busy(loose))
	x.Put("/var/lib/dnf/rpmdb_lock.pid", "nobody")
	require.Empty(t, x.store.busy(rpms))
	for _, p := range lockFiles[rpms] {
		unlock := x.lock(p)
		require.True(t, strings.HasPrefix(x.store.busy(rpms), p+" is held by"), p)
		unlock()
	}
}
