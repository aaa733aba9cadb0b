package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func TestFailures(t *testing.T) {
	t.Run("a service that restarts neither way leaves the node not as it was", func(t *testing.T) {
		n := newTestNode(t)
		n.units.fails["restart kubelet.service"] = errors.New("exit status 1")
		status := n.fail(request(1, "/etc/kubelet/a", "a"))
		assert.False(t, status.RolledBack)
		assert.Contains(t, status.Message, "could not be put back")
		assert.Equal(t, "(missing)", n.content("/etc/kubelet/a"))
		assert.Zero(t, n.count("rolled-back"))
	})
	t.Run("a service that is not active after its restart fails the run", func(t *testing.T) {
		n := newTestNode(t)
		n.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "activating", Type: "simple"}
		status := n.fail(request(1, "/etc/kubelet/a", "a"))
		assert.Contains(t, status.Message, "verify failed: kubelet.service is activating")
	})
	t.Run("a write that fails undoes what was written, and no service is bothered", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/kubelet/a", "old")
		n.put("/etc/kubelet/b", "not a directory")
		n.agent.boundary = func(where string) error {
			if where == "begun write /etc/kubelet/c" { // between planning and writing
				require.NoError(t, os.RemoveAll(filepath.Join(n.root, "/etc/kubelet/c")))
				require.NoError(t, os.MkdirAll(filepath.Join(n.root, "/etc/kubelet/c/in/the/way"), 0o755))
			}
			return nil
		}
		status := n.fail(request(1, "/etc/kubelet/a", "new", "/etc/kubelet/c", "c"))
		assert.Equal(t, "old", n.content("/etc/kubelet/a"))
		assert.Empty(t, n.units.calls)
		assert.Contains(t, status.Message, "write /etc/kubelet/c failed")
		n.noLeftovers()
	})
	t.Run("actions that the node can't do fail the run before anything is changed", func(t *testing.T) {
		n := newTestNode(t)
		n.agent.cfg.Units = nil
		status := n.fail(request(1, "/etc/kubelet/a", "a"))
		assert.True(t, status.RolledBack)
		assert.Contains(t, status.Message, "no systemctl")
		assert.Contains(t, status.Message, "nothing was changed on the node")
		assert.Equal(t, "(missing)", n.content("/etc/kubelet/a"))
		n.noLeftovers()
	})
	t.Run("without actions it does without systemctl", func(t *testing.T) {
		n := newTestNode(t)
		n.agent.cfg.Units = nil
		n.succeed(request(1, "/etc/quiet/a", "a"))
	})
	t.Run("a file that does not stay as it was written fails the run", func(t *testing.T) {
		n := newTestNode(t)
		n.units.hook = func(context.Context, string) error {
			n.put("/etc/kubelet/a", "another tool's")
			return nil
		}
		status := n.fail(request(1, "/etc/kubelet/a", "a"))
		assert.Contains(t, status.Message, "/etc/kubelet/a is not as it was written: content")
		assert.NotContains(t, status.Message, "another tool's")
	})
	t.Run("a token that was claimed while the run failed does not start it again", func(t *testing.T) {
		n := newTestNode(t)
		req := request(1, "/etc/kubelet/a", "a")
		adopting := req
		adopting.Token = 2
		n.units.hook = func(context.Context, string) error {
			_, err := n.newAgent().Apply(context.Background(), adopting)
			return errors.Join(err, errors.New("exit status 1"))
		}
		n.fail(req)
		n.units.hook = nil
		n.fail(adopting)
		adopting.Token = 3
		n.succeed(adopting)
	})
	t.Run("a new digest starts from what the failed one left", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/kubelet/a", "distribution's")
		n.units.fails["restart kubelet.service"] = errors.New("exit status 1")
		n.fail(request(1, "/etc/kubelet/a", "a"))
		delete(n.units.fails, "restart kubelet.service")
		n.succeed(request(2, "/etc/kubelet/a", "b"))
		n.succeed(request(3))
		assert.Equal(t, "distribution's", n.content("/etc/kubelet/a"))
	})
	t.Run("a state that can't be written is reported", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/var/lib/refit", "not a directory")
		_, err := n.agent.Apply(context.Background(), request(1, "/etc/quiet/a", "a"))
		assert.Equal(t, node.ReasonInternal, asAgentError(err).Reason)
		assert.Equal(t, "(missing)", n.content("/etc/quiet/a"))
	})
}

// TestWhatCouldNotBePutBackIsOwed has the next run find no file to change, whatever the specs have become.
func TestWhatCouldNotBePutBackIsOwed(t *testing.T) {
	const again = "an earlier run could not put the node back as it was, so what it had to do on the node is done again"
	down := host.UnitState{LoadState: "loaded", ActiveState: "failed", Type: "simple"}
	for name, tc := range map[string]struct {
		begin func(n *testNode)
		next  string
		what  string
	}{
		"a service that restarts neither way, with the specs of before": {
			begin: func(*testNode) {}, next: "old", what: "the files are back, and the service is down",
		},
		"a file that can't be put back, with the same specs": {
			begin: func(n *testNode) { // between the change and the rollback
				require.NoError(n.t, os.RemoveAll(n.agent.state.path("backups")))
				n.units.states["kubelet.service"] = down
			},
			next: "new", what: "the new file is there, and nothing has read it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.succeed(request(1, "/etc/kubelet/a", "old"))
			n.units.hook = func(context.Context, string) error { tc.begin(n); return errRefused }
			status := n.fail(request(2, "/etc/kubelet/a", "new"))
			require.False(t, status.RolledBack)
			require.Equal(t, tc.next, n.content("/etc/kubelet/a"))

			n.units.hook, n.units.calls = nil, nil
			delete(n.units.states, "kubelet.service")
			req := request(3, "/etc/kubelet/a", tc.next)
			plan := n.plan(req)
			require.Empty(t, plan.Changes)
			require.Equal(t, restartKubelet, plan.Actions, tc.what)
			require.Contains(t, plan.Notes, again)
			n.succeed(req)
			require.Equal(t, []string{"restart kubelet.service"}, n.units.calls)
			require.Empty(t, n.plan(request(4, "/etc/kubelet/a", tc.next)).Actions, "it is owed once")
		})
	}
	t.Run("nothing is owed for files that nothing reads", func(t *testing.T) {
		n := newTestNode(t)
		n.agent.boundary = func(where string) error {
			if where == "begun write /etc/quiet/b" {
				require.NoError(t, os.RemoveAll(n.agent.state.path("backups")))
				require.NoError(t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet/b/in/the/way"), 0o755))
			}
			return nil
		}
		require.False(t, n.fail(request(1, "/etc/quiet/a", "a", "/etc/quiet/b", "b")).RolledBack)
		n.agent.boundary = func(string) error { return nil }
		require.NoError(t, os.RemoveAll(filepath.Join(n.root, "/etc/quiet/b")))
		plan := n.plan(request(2, "/etc/quiet/a", "a"))
		require.Empty(t, plan.Actions)
		require.Empty(t, plan.Notes)
	})
	t.Run("a reboot that was owed comes once more, and not in another boot", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.units.system = "" // systemd does not answer, so the reboot is not asked for
		b.agent.boundary = func(where string) error {
			if where == "begun reboot" {
				require.NoError(t, os.RemoveAll(b.agent.state.path("backups")))
			}
			return nil
		}
		require.False(t, b.fail(request(1, "/etc/boot/a", "a")).RolledBack)
		b.newProcess()
		require.Equal(t, []disruption.Action{{Type: disruption.Reboot}}, b.plan(request(2, "/etc/boot/a", "a")).Actions)
		b.start()
		require.Empty(t, b.plan(request(2, "/etc/boot/a", "a")).Actions, "it has read what is there")
	})
}
