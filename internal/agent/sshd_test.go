package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
)

// socketNode is a node whose SSH server is started by a socket, which has its ports from the server's configuration: those of 1 can't be had.
func socketNode(t *testing.T, service string) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.program("sshd", "exit 0")
	n.put(sshSocketGenerators[0], "a fake")
	n.units.states["ssh.service"] = host.UnitState{LoadState: "loaded", ActiveState: service, Type: "notify"}
	n.units.states[sshSocket] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	n.units.hook = func(_ context.Context, call string) error {
		if call != "restart "+sshSocket {
			return nil
		}
		if strings.Contains(n.content("/etc/ssh/a"), "Port 1\n") {
			down := map[string]string{sshSocket: "failed", "ssh.service": "inactive"} // the server requires it
			for unit := range down {
				state := n.units.states[unit]
				state.ActiveState = down[unit]
				n.units.states[unit] = state
			}
			return errors.New("exit status 1")
		}
		n.units.states[sshSocket] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
		return nil
	}
	return n
}

// TestTheSocketOfSSHListensAsAfterABoot has the port change that the next boot would have the socket listen on: a login is to meet it.
func TestTheSocketOfSSHListensAsAfterABoot(t *testing.T) {
	renewed := []string{"daemon-reload", "restart " + sshSocket}
	for name, tc := range map[string]struct {
		service string
		change  func(n *testNode)
		want    []string
	}{
		"before it was started": {"inactive", nil, renewed},
		"while it runs":         {"active", nil, append(renewed[:2:2], "reload ssh.service")},
		"a server without one": {"active", func(n *testNode) {
			n.units.states[sshSocket] = host.UnitState{LoadState: "loaded", ActiveState: "inactive"}
		}, []string{"reload ssh.service"}},
		"a node without one": {"active", func(n *testNode) {
			n.units.states[sshSocket] = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
		}, []string{"reload ssh.service"}},
		"one that has failed beside a server that runs": {"active", func(n *testNode) {
			n.units.states[sshSocket] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
		}, []string{"reload ssh.service"}},
		"one with ports of its own": {"active", func(n *testNode) { n.delete(sshSocketGenerators[0]) }, []string{"reload ssh.service"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := socketNode(t, tc.service)
			if tc.change != nil {
				tc.change(n)
			}
			status := n.succeed(request(1, "/etc/ssh/a", "Port 2222\n"))
			require.Equal(t, tc.want, n.units.calls)
			require.Empty(t, status.Notes)
		})
	}
}

func TestASocketOfSSHThatCanNotListenIsTakenBack(t *testing.T) {
	n := socketNode(t, "active")
	status := n.fail(request(1, "/etc/ssh/a", "Port 1\n"))
	require.True(t, status.RolledBack, status.Message)
	require.Equal(t, []string{"daemon-reload", "restart " + sshSocket, "reset-failed " + sshSocket, "daemon-reload", "restart " + sshSocket}, n.units.calls)
	require.Equal(t, "active", n.units.states[sshSocket].ActiveState)
}
