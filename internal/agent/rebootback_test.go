package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// newLockedOut returns a node whose way in a run closes that reboots it, and that run. refuse is how often systemd then refuses to reboot it.
func newLockedOut(t *testing.T, refuse int) (*bootNode, node.Request, func() node.Status) {
	t.Helper()
	n := layOut(t, memoryDir(t))
	n.succeed(request(1, "/etc/nftables/a.conf", "old", "/etc/kubelet/a", "old"))
	b := newBootNode(n)
	b.login = nil
	b.units.hook = func(_ context.Context, call string) error {
		if call != "reboot" {
			return nil
		}
		if b.boots == 2 && refuse > 0 {
			refuse--
			return errors.New("exit status 1")
		}
		b.due = true
		return nil
	}
	req := request(2, "/etc/nftables/a.conf", "drop", "/etc/kubelet/a", "new", "/etc/quiet/b", "new", "/etc/boot/a", "new")
	next := func() {
		if b.due {
			b.start()
		} else {
			b.newProcess()
		}
	}
	return b, req, func() node.Status {
		_, _ = b.agent.Apply(t.Context(), req)
		next()
		return b.alone(next)
	}
}

func TestARebootThatOpensTheWayInIsAskedForUntilItComes(t *testing.T) {
	t.Parallel()
	deaths := 0
	for died := "-"; died != ""; deaths++ {
		b, _, run := newLockedOut(t, 3)
		b.died = b.dieAt(deaths)
		b.deadly = b.agent.boundary
		status := run()
		if died = *b.died; died == "work written" {
			continue
		}
		b.requireBack(status, died)
		require.Equal(t, 3, b.boots, "with the new files, and with the old ones, after death at %q", died)
		require.Equal(t, "confirm the way in failed: refit could not log in to the node any more; the files were put back, and the node was rebooted with that", status.Message)
		b.eachStepOnce(died)
	}
	require.Greater(t, deaths, 50)
}

func TestARebootThatOpensTheWayInIsTried(t *testing.T) {
	for name, fail := range map[string]func(b *bootNode) (mend func()){
		"while systemd does not answer": func(b *bootNode) func() {
			b.units.system = ""
			return func() { b.units.system = "running" }
		},
		"while the journal can't be written": func(b *bootNode) func() {
			b.endJournal()
			name := b.agent.state.path(journalFile)
			return func() {
				require.NoError(b.t, errors.Join(os.Remove(name), os.Rename(name+".before", name)))
			}
		},
		"while one boot can't be told from another": func(b *bootNode) func() {
			was := b.content("/proc/1/stat")
			b.put("/proc/1/stat", "")
			return func() { b.put("/proc/1/stat", was) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, req, _ := newLockedOut(t, 0)
			require.True(t, b.apply(req).Rebooting)
			b.start()
			var mend func()
			waits := 0
			b.agent.boundary = func(where string) error {
				if where == "before "+stepRebootBack && mend == nil {
					mend = fail(b)
					b.useClock(hookClock{func() {
						if waits++; waits == 3 {
							mend()
						}
					}})
				}
				return nil
			}
			require.NoError(t, b.agent.Resume(t.Context()))
			require.Equal(t, 3, waits)
			require.True(t, b.due)
			require.True(t, b.watch.armed)
			b.start()
			b.requireBack(b.alone(b.newProcess), "")
			require.Equal(t, 3, b.boots)
		})
	}
}

// TestAFullDiskKeepsNoNodeLockedOut has the disk fill up when everything is put back.
func TestAFullDiskKeepsNoNodeLockedOut(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a disk of its own takes root: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := layOut(t, dir)
	b := newBootNode(n)
	b.login = nil
	require.True(t, b.apply(request(2, "/etc/nftables/a.conf", "drop", "/etc/boot/a", "new")).Rebooting)
	b.start()
	b.at("before "+stepRebootBack, func() {
		_ = os.WriteFile(filepath.Join(dir, "big"), make([]byte, 4<<20), 0o600)
		for fill(b.agent.state.path(journalFile)) {
		}
	})
	require.NoError(t, b.agent.Resume(t.Context()))
	require.True(t, b.due)
	require.NoError(t, os.Remove(filepath.Join(dir, "big")))
	b.start()
	require.True(t, b.alone(b.newProcess).RolledBack)
	require.Equal(t, 3, b.boots)
	require.NoFileExists(t, b.agent.state.path(reserveFile))
}

// fill makes a file longer until there is no room for it.
func fill(name string) bool {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.WriteString("\n")
	return err == nil
}

// TestTheNodeIsNotBootedOnAndOn has a disk on which nothing can be noted any more once the node is back.
func TestTheNodeIsNotBootedOnAndOn(t *testing.T) {
	b, req, _ := newLockedOut(t, 0)
	require.True(t, b.apply(req).Rebooting)
	b.start()
	b.login = nil
	require.NoError(t, b.agent.Resume(t.Context()))
	require.True(t, b.due)
	b.start()
	b.at("before "+stepRebootBack, b.endJournal)
	status := b.alone(b.newProcess)
	require.True(t, status.RolledBack, status.Message)
	require.False(t, b.due)
	require.Equal(t, 3, b.boots)
}

func TestANodeThatWasBootedBackIsLookedAtBeforeItCountsAsSo(t *testing.T) {
	for name, tc := range map[string]struct {
		boot    func(b *bootNode)
		message string
	}{
		"it works": {func(*bootNode) {}, ""},
		"a unit is not well": {func(b *bootNode) {
			b.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
		}, "kubelet.service is failed"},
		"it does not come up": {func(b *bootNode) { b.units.system = "starting" }, "the node is still starting 10m0s after the reboot"},
		"what worked does not": {func(b *bootNode) {
			b.asking(func() error { return errors.New("no route to host") })
		}, "worked before and does not now: no route to host"},
	} {
		t.Run(name, func(t *testing.T) {
			b, req, _ := newLockedOut(t, 0)
			b.asking(func() error { return nil })
			require.True(t, b.apply(req).Rebooting)
			for range 2 {
				b.start()
				b.asking(func() error { return nil })
				if b.boots == 3 {
					waits := 0
					b.useClock(countingClock{&waits, testClock{}.Now()})
					tc.boot(b)
				}
				require.NoError(t, b.agent.Resume(t.Context()))
			}
			last, err := b.agent.state.loadStatus()
			require.NoError(t, err)
			require.Equal(t, 3, b.boots)
			require.Equal(t, tc.message == "", last.Status.RolledBack, last.Status.Message)
			if tc.message != "" {
				require.Contains(t, last.Status.Message, "could not be put back as it was: see that the node works again failed: ")
				require.Contains(t, last.Status.Message, tc.message)
			}
			require.Equal(t, "old", b.content("/etc/nftables/a.conf"))
			require.False(t, b.watch.armed)
		})
	}
}

func TestANodeIsBootedBackThoughNotAllCouldBePutBack(t *testing.T) {
	b, req, _ := newLockedOut(t, 0)
	require.True(t, b.apply(req).Rebooting)
	b.start()
	b.login = nil
	inTheWay := filepath.Join(b.root, "/etc/kubelet/a")
	b.at("begun put back /etc/kubelet/a", func() {
		require.NoError(t, errors.Join(os.Remove(inTheWay), os.Mkdir(inTheWay, 0o700)))
	})
	require.NoError(t, b.agent.Resume(t.Context()))
	require.True(t, b.due, "locked out nobody could see to it")
	require.NoError(t, os.Remove(inTheWay))
	b.start()
	b.requireBack(b.alone(b.newProcess), "")
	require.Equal(t, 3, b.boots)
}
