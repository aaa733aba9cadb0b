package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// TestWhatAnEarlierRunHasLeftGoesWithTheOneThatClosesTheWayIn has a run fail for something that passes, and leave its files, as a policy
// says. The next one repeats its action, which closes the way in.
func TestWhatAnEarlierRunHasLeftGoesWithTheOneThatClosesTheWayIn(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/nftables/a.conf", "old", "/etc/kubelet/a", "old"))
	n.units.fails["reload nftables.service"] = errors.New("exit status 1")
	req := request(2, "/etc/nftables/a.conf", "drop", "/etc/kubelet/a", "new", "/etc/quiet/added", "new")
	req.Rules.OnFailure = disruption.StopOnFailure
	require.Equal(t, "drop", func() string { n.fail(req); return n.content("/etc/nftables/a.conf") }())

	delete(n.units.fails, "reload nftables.service")
	n.units.hook = func(_ context.Context, call string) error {
		if call == "reload nftables.service" {
			if n.login = n.logIn; n.content("/etc/nftables/a.conf") == "drop" {
				n.login = nil
			}
		}
		return nil
	}
	req.Token = 3
	status := n.fail(req)
	require.Contains(t, status.Message, "the files were put back")
	require.Equal(t, "old", n.content("/etc/nftables/a.conf"))
	require.Equal(t, "old", n.content("/etc/kubelet/a"))
	require.Equal(t, "(missing)", n.content("/etc/quiet/added"))
	require.NotNil(t, n.login, "the way in is open")
	require.NoDirExists(t, n.agent.state.path("left"))
	require.False(t, n.watch.armed)
	n.login = n.logIn
	req.Token = 4
	n.units.hook = nil
	require.Equal(t, node.Succeeded, n.apply(req).State, "and another try can succeed")
}

// TestWhatWasLeftToARebootGoesIfThatClosesTheWayIn has the next run do no more than boot the node with what was left.
func TestWhatWasLeftToARebootGoesIfThatClosesTheWayIn(t *testing.T) {
	b := newBootNode(newTestNode(t))
	b.succeed(request(1, "/etc/crio/a", "old"))
	b.units.fails["reload crio.service"] = errors.New("exit status 1")
	req := request(2, "/etc/crio/a", "drop") // say a script that a unit runs
	req.Rules.OnFailure = disruption.RebootOnFailure
	require.True(t, b.fail(req).NeedsReboot)

	delete(b.units.fails, "reload crio.service")
	req.Token, b.login = 3, nil
	require.True(t, b.apply(req).Rebooting)
	for b.due {
		b.start()
		require.NoError(t, b.agent.Resume(t.Context()))
	}
	last, err := b.agent.state.loadStatus()
	require.NoError(t, err)
	require.Equal(t, node.Failed, last.Status.State)
	require.True(t, last.Status.RolledBack, last.Status.Message)
	require.Contains(t, last.Status.Message, "the files were put back, and the node was rebooted with that")
	require.Equal(t, "old", b.content("/etc/crio/a"))
	require.Equal(t, 3, b.boots)
	require.False(t, b.watch.armed)
	require.Empty(t, last.Left)
	require.Empty(t, b.plan(req).Drift)
}
