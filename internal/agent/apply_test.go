package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

func TestApply(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/kubelet/a", "distribution's")
	req := request(1, "/etc/kubelet/a", "ours", "/etc/quiet/dir/b", "b")
	status := n.succeed(req)
	assert.Equal(t, "ours", n.content("/etc/kubelet/a"))
	assert.Equal(t, "b", n.content("/etc/quiet/dir/b"))
	assert.Equal(t, []string{"restart kubelet.service"}, n.units.calls)
	assert.Equal(t, "changed 2 files, then: restart kubelet.service", status.Message)
	assert.Equal(t, []string{
		"claimed", "run-started",
		"step-started arm the way back", "step-done arm the way back",
		"step-started keep copies", "step-done keep copies",
		"step-started write /etc/kubelet/a", "step-done write /etc/kubelet/a",
		"step-started write /etc/quiet/dir/b", "step-done write /etc/quiet/dir/b",
		"step-started restart kubelet.service", "step-done restart kubelet.service",
		"step-started verify", "step-done verify",
		"login-awaited confirm the way in", "step-done confirm the way in",
		"step-started record", "step-done record",
		"run-done",
	}, n.events())
	n.noLeftovers()

	t.Run("the same again does nothing", func(t *testing.T) {
		before := n.events()
		assert.Equal(t, status, n.succeed(req))
		assert.Equal(t, before, n.events())
	})
	t.Run("dropped files give way to what was there before", func(t *testing.T) {
		status := n.succeed(request(2))
		assert.Equal(t, "distribution's", n.content("/etc/kubelet/a"))
		assert.Equal(t, "(missing)", n.content("/etc/quiet/dir/b"))
		assert.Equal(t, node.Restore, status.Changes[0].Operation)
		originals, err := os.ReadDir(n.agent.state.path("originals"))
		require.NoError(t, err)
		assert.Empty(t, originals)
	})
	t.Run("the state is for nobody else", func(t *testing.T) {
		require.NoError(t, filepath.WalkDir(n.agent.state.dir, func(path string, d os.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			if !d.IsDir() {
				assert.Equal(t, os.FileMode(0o600), info.Mode(), path)
			}
			return nil
		}))
		info, err := os.Stat(n.agent.state.dir)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	})
}

func TestConflictKeepsACopy(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "a"))
	n.put("/etc/quiet/a", "edited on the node")
	status := n.succeed(request(2, "/etc/quiet/a", "b"))
	assert.Equal(t, "b", n.content("/etc/quiet/a"))
	require.Len(t, status.Notes, 1)
	_, below, found := strings.Cut(status.Notes[0], stateRoot)
	require.True(t, found)
	copied := stateRoot + below
	assert.Equal(t, "edited on the node", n.content(copied))
}

func TestDriftStaysAsItIs(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "a"))
	n.put("/etc/quiet/a", "edited on the node")
	n.succeed(request(2, "/etc/quiet/a", "a", "/etc/quiet/b", "b"))
	assert.Equal(t, "edited on the node", n.content("/etc/quiet/a"))
}

func TestSymbolicLinks(t *testing.T) {
	t.Run("a file is written through a link, absolute ones seen from the root", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/usr/lib/real", "old")
		require.NoError(t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet"), 0o755))
		require.NoError(t, os.Symlink("/usr/lib/real", filepath.Join(n.root, "/etc/quiet/link")))
		n.succeed(request(1, "/etc/quiet/link", "new"))
		assert.Equal(t, "new", n.content("/usr/lib/real"))
		n.succeed(request(2))
		assert.Equal(t, "old", n.content("/usr/lib/real"))
		info, err := os.Lstat(filepath.Join(n.root, "/etc/quiet/link"))
		require.NoError(t, err)
		assert.NotZero(t, info.Mode()&os.ModeSymlink)
	})
	t.Run("none leads out of the root", func(t *testing.T) {
		n := newTestNode(t)
		outside := t.TempDir()
		require.NoError(t, os.Symlink(outside, filepath.Join(n.root, "/etc/quiet")))
		n.succeed(request(1, "/etc/quiet/a", "a"))
		entries, err := os.ReadDir(outside)
		require.NoError(t, err)
		assert.Empty(t, entries)
		assert.Equal(t, "a", n.content(filepath.Join(outside, "a")))
	})
}

// TestLinksOfUsers has the owner of a directory put a link in the place of a file that is written there, for root to write elsewhere.
func TestLinksOfUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const refused = "/etc/quiet/app/env is a symbolic link of user 4711, which is not followed"
	newNode := func(t *testing.T) (n *testNode, exchange func()) {
		n = newTestNode(t)
		n.put("/etc/profile", "the system's")
		n.succeed(request(1, "/etc/quiet/app/env", "a"))
		env := filepath.Join(n.root, "/etc/quiet/app/env")
		return n, func() {
			require.NoError(t, errors.Join(os.Remove(env), os.Symlink("/etc/profile", env), os.Lchown(env, 4711, 4711)))
		}
	}
	t.Run("block the plan before anything is written", func(t *testing.T) {
		n, exchange := newNode(t)
		exchange()
		require.Equal(t, []node.Drift{{Ref: node.FileRef("/etc/quiet/app/env"), What: []string{"content"}}}, n.drift().Drift)
		for _, req := range []node.Request{request(2, "/etc/quiet/app/env", "b", "/etc/quiet/a", "a"), request(3, "/etc/quiet/a", "a")} {
			require.Contains(t, n.refuse(req, node.ReasonBlocked), refused)
		}
		require.Equal(t, "the system's", n.content("/etc/profile"))
		require.Equal(t, "(missing)", n.content("/etc/quiet/a"))
	})
	for name, boundary := range map[string]string{
		"that come after the plan fail the run":        "before keep copies",
		"that come after the copies do so too":         "before write /etc/quiet/app/env",
		"that come after the change don't lead to one": "before verify",
	} {
		t.Run(name, func(t *testing.T) {
			n, exchange := newNode(t)
			n.at(boundary, exchange)
			require.Contains(t, n.fail(request(2, "/etc/quiet/app/env", "b")).Message, refused)
			require.Equal(t, "the system's", n.content("/etc/profile"))
		})
	}
	t.Run("that are gone again are no trouble", func(t *testing.T) {
		n, exchange := newNode(t)
		exchange()
		n.delete("/etc/quiet/app/env")
		n.succeed(request(2, "/etc/quiet/app/env", "b"))
		require.Equal(t, "b", n.content("/etc/quiet/app/env"))
	})
}

func TestFence(t *testing.T) {
	t.Run("a lower token is stale", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(5, "/etc/quiet/a", "a"))
		assert.Contains(t, n.refuse(request(4, "/etc/quiet/a", "b"), node.ReasonStale), "token 5")
		assert.Equal(t, "a", n.content("/etc/quiet/a"))
	})
	t.Run("a failed run is tried again by a token of an etcd that was set back", func(t *testing.T) {
		n := newTestNode(t)
		n.units.hook = func(context.Context, string) error {
			if n.content("/etc/crio/a") == "new" {
				return errors.New("it does not start")
			}
			return nil
		}
		n.fail(request(9, "/etc/crio/a", "new"))
		n.units.hook = nil
		n.delete("/var/lib/refit/token") // a person has, who knows that no other refit is at work
		n.succeed(request(3, "/etc/crio/a", "new"))
		assert.Equal(t, "new", n.content("/etc/crio/a"))
	})
	t.Run("apply takes a token", func(t *testing.T) {
		n := newTestNode(t)
		n.refuse(request(0, "/etc/quiet/a", "b"), node.ReasonInvalid)
	})
	t.Run("a token that can't be read is not taken for none", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(5, "/etc/quiet/a", "a"))
		n.put("/var/lib/refit/token", "")
		_, err := n.agent.Apply(context.Background(), request(6, "/etc/quiet/a", "b"))
		assert.Equal(t, node.ReasonInternal, asAgentError(err).Reason)
	})
	t.Run("another Machine's node is refused", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(5, "/etc/quiet/a", "a"))
		req := request(6, "/etc/quiet/a", "b")
		req.Machine.UID = "another"
		n.refuse(req, node.ReasonOtherMachine)
		_, err := n.agent.Plan(context.Background(), req)
		assert.Equal(t, node.ReasonOtherMachine, asAgentError(err).Reason)
		_, err = n.agent.Status(context.Background(), node.StatusRequest{Protocol: node.Protocol, Machine: req.Machine})
		assert.Equal(t, node.ReasonOtherMachine, asAgentError(err).Reason)
	})
}

// clusterctl move gives a Machine another UID. Its node has a record of the former one until it is updated again.
func TestAMachineThatWasMovedIsStillTheNodes(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(5, "/etc/quiet/a", "a"))
	req := request(6, "/etc/quiet/a", "b")
	req.Machine.UID, req.Machine.Former = "uid-2", []string{"uid-0"}
	n.refuse(req, node.ReasonOtherMachine)

	req.Machine.Former = []string{machine.UID, "uid-0"}
	n.succeed(req)
	rec, err := n.agent.state.loadRecord()
	require.NoError(t, err)
	assert.Equal(t, node.MachineID{Namespace: machine.Namespace, Name: machine.Name, UID: "uid-2"}, rec.Machine)

	req = request(7, "/etc/quiet/a", "c")
	n.refuse(req, node.ReasonOtherMachine) // the management cluster that it was moved from does not get it back
}

// busyNode is a node on which the run of a request is under way: something else holds the lock.
func busyNode(t *testing.T, req node.Request) (n *testNode, release func()) {
	n = newTestNode(t)
	n.agent.cfg.Launcher = LauncherFunc(func(context.Context, string, string) error { return nil })
	require.NoError(t, n.agent.state.create())
	release, err := n.agent.state.lock(runLock)
	require.NoError(t, err)
	assert.Equal(t, node.Running, n.apply(req).State)
	return n, release
}

func TestRunUnderWay(t *testing.T) {
	req := request(1, "/etc/quiet/a", "a")
	t.Run("for another digest it is busy", func(t *testing.T) {
		n, release := busyNode(t, req)
		defer release()
		assert.Contains(t, n.refuse(request(2, "/etc/quiet/a", "b"), node.ReasonBusy), "digest-1")
	})
	t.Run("for the same digest it is adopted, once a token", func(t *testing.T) {
		n, release := busyNode(t, req)
		defer release()
		again := req
		again.Token = 7
		n.apply(again)
		status := n.apply(again)
		assert.Equal(t, node.Running, status.State)
		assert.False(t, status.Interrupted)
		assert.Equal(t, int64(1), status.Token)
		assert.Equal(t, 1, n.count("adopted"))
		n.refuse(req, node.ReasonStale)
	})
	t.Run("its end is waited for", func(t *testing.T) {
		n, release := busyNode(t, req)
		other := n.newAgent()
		go func() {
			release()
			_, _ = other.Run(context.Background())
		}()
		waiting := req
		waiting.WaitSeconds = 24 * 3600 // of a clock that passes at once
		status := n.apply(waiting)
		for status.Interrupted { // between release and Run
			status = n.apply(waiting)
		}
		assert.Equal(t, node.Succeeded, status.State)
	})
	t.Run("status tells of it, and that nobody works on it", func(t *testing.T) {
		n, release := busyNode(t, req)
		ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: "digest-2"}
		status, err := n.agent.Status(context.Background(), ask)
		require.NoError(t, err)
		assert.Equal(t, node.Running, status.State)
		assert.Equal(t, "digest-1", status.Digest)
		assert.Equal(t, 4, status.Total)
		release()
		ask.WaitSeconds = 60
		status, err = n.agent.Status(context.Background(), ask)
		require.NoError(t, err)
		assert.True(t, status.Interrupted)
	})
	t.Run("when it was interrupted, another digest has it taken up first", func(t *testing.T) {
		n, release := busyNode(t, req)
		release()
		n.agent = n.newAgent()
		next := request(2, "/etc/quiet/a", "b")
		n.refuse(next, node.ReasonBusy)
		assert.Equal(t, "a", n.content("/etc/quiet/a"))
		n.succeed(next)
		assert.Equal(t, "b", n.content("/etc/quiet/a"))
	})
	t.Run("nothing is known of a digest for which nothing has run", func(t *testing.T) {
		n := newTestNode(t)
		ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: "digest-2"}
		status, err := n.agent.Status(context.Background(), ask)
		require.NoError(t, err)
		assert.Equal(t, node.Status{State: node.Idle, Digest: "digest-2"}, status)
		n.succeed(req)
		status, err = n.agent.Status(context.Background(), ask)
		require.NoError(t, err)
		assert.Equal(t, node.Idle, status.State)
		ask.Digest = ""
		status, err = n.agent.Status(context.Background(), ask)
		require.NoError(t, err)
		assert.Equal(t, node.Succeeded, status.State)
	})
}

func TestBackupsAndJournalAreBounded(t *testing.T) {
	n := newTestNode(t)
	for token := int64(8); token < 13; token++ {
		n.succeed(request(token, "/etc/quiet/a", strings.Repeat("a", int(token))))
	}
	entries, err := os.ReadDir(n.agent.state.path("backups"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.ElementsMatch(t, []string{"digest-10-10", "digest-11-11", "digest-12-12"}, names)

	require.NoError(t, os.Truncate(n.agent.state.path(journalFile), maxJournal+1))
	n.succeed(request(20, "/etc/quiet/a", "b"))
	assert.FileExists(t, n.agent.state.path(journalOld))
	info, err := os.Stat(n.agent.state.path(journalFile))
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(4096))
	assert.Equal(t, 1, n.count("run-done"))
}

func TestATornLineOfTheJournalCountsAsNotWritten(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "a"))
	f, err := os.OpenFile(n.agent.state.path(journalFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"event":"step-done","step":"wri`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	n.succeed(request(2, "/etc/quiet/a", "b"))
	assert.Equal(t, 2, n.count("run-done"))
	assert.Equal(t, 2, n.count("claimed"))
}
