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
	t.Run("a token that was claimed while the run failed does not start it anew", func(t *testing.T) {
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
