package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// sharedNode is a node on which others do their part, too.
type sharedNode struct {
	*testNode
	broken bool
	asked  int
}

func newSharedNode(t *testing.T) *sharedNode {
	t.Helper()
	n := &sharedNode{testNode: newTestNode(t)}
	n.agent.cfg.ActionTimeout = fewLooks
	n.process()
	n.put("/etc/quiet/a", "old")
	return n
}

// process has another process work on the node.
func (n *sharedNode) process() {
	n.agent.probes = func(bool) []probe.Probe {
		return []probe.Probe{probe.New("the network", func(context.Context) error {
			if n.asked++; n.broken {
				return errors.New("no route")
			}
			return nil
		})}
	}
}

// note has the node note what works, before an updater is called.
func (n *sharedNode) note(req node.Request, name string) {
	n.t.Helper()
	req.NoteFor = name
	status := n.apply(req)
	require.Equal(n.t, node.Status{State: node.Idle, Digest: req.Digest}, status)
}

const blamed = "see that the node works after other updaters failed: after the part of UpdaterRegistration memory, which refit can't take back: " +
	"the network worked before and does not now: no route (see the node); refit has not begun its own part on the node"

// TestWhatAnUpdaterHasBrokenIsNotTakenForBrokenBefore, though refit itself has nothing to do on the node, or nothing that disturbs it.
func TestWhatAnUpdaterHasBrokenIsNotTakenForBrokenBefore(t *testing.T) {
	for name, req := range map[string]node.Request{
		"nothing to do": request(1), "quiet": request(1, "/etc/quiet/a", "new"), "a restart": request(1, "/etc/kubelet/a", "new"),
		"a reboot": request(1, "/etc/boot/a", "new"),
	} {
		for _, onFailure := range []disruption.OnFailure{disruption.RollbackOnFailure, disruption.StopOnFailure, disruption.RebootOnFailure} {
			if name != "nothing to do" && onFailure != disruption.RebootOnFailure {
				continue // all the same
			}
			t.Run(name+", "+string(onFailure), func(t *testing.T) {
				n := newSharedNode(t)
				req := req
				req.Rules.OnFailure = onFailure
				n.note(req, "memory")
				n.broken = true
				status := n.fail(req)
				require.Equal(t, blamed, status.Message)
				require.True(t, status.RolledBack, "refit has left nothing")
				require.False(t, status.NeedsReboot)
				require.Equal(t, "old", n.content("/etc/quiet/a"))
				require.Empty(t, n.units.calls)

				req.Token = 2
				n.note(req, "memory")
				require.Equal(t, blamed, n.fail(req).Message, "what is noted is not noted again for the same specs")
				if name == "a reboot" {
					return
				}
				n.broken, req.Token = false, 3
				n.succeed(req)
				require.Equal(t, "(missing)", n.content("/var/lib/refit/works.json"))
			})
		}
	}
}

// TestNoteOutlivesProcessesAndBoots, and the second updater does not have it taken again.
func TestNoteOutlivesProcessesAndBoots(t *testing.T) {
	n := newSharedNode(t)
	req := request(1, "/etc/quiet/a", "new")
	n.note(req, "memory")
	n.broken = true
	n.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
	n.agent = n.newAgent()
	n.agent.cfg.ActionTimeout = fewLooks
	n.process()
	n.note(req, "memory")
	n.note(req, "volume")
	require.Equal(t, 2, n.count("works-noted"), "once for each")
	require.Contains(t, n.fail(req).Message, "after the part of UpdaterRegistration memory, volume, which refit can't take back")
	require.Greater(t, n.asked, int(bootPatience/worksLook), "a boot may be under way")
}

// TestBrokenBeforeUpdatersIsNotTheirs and nobody's.
func TestBrokenBeforeUpdatersIsNotTheirs(t *testing.T) {
	n := newSharedNode(t)
	n.broken = true
	req := request(1, "/etc/quiet/a", "new")
	n.note(req, "memory")
	n.succeed(req)
}

// TestRefitsPartMayMendWhatUpdatersHaveBroken: for other specs, that is asked of the node at the end only, whether their updaters are called or not.
func TestRefitsPartMayMendWhatUpdatersHaveBroken(t *testing.T) {
	for _, called := range []bool{true, false} {
		n := newSharedNode(t)
		req := request(1, "/etc/quiet/a", "new")
		n.note(req, "memory")
		n.broken = true
		n.fail(req)
		for token := int64(2); token < 4; token++ {
			mends := token == 3
			n.units.hook = func(context.Context, string) error { n.broken = !mends; return nil }
			next := request(token, "/etc/kubelet/a", "new")
			if called {
				n.note(next, "memory")
			}
			if mends {
				n.succeed(next)
				break
			}
			require.Contains(t, n.fail(next).Message, "verify failed: the network worked before and does not now")
		}
	}
}

// TestWhatRefitsPartHasBrokenIsNotTheUpdaters: another try begins with it.
func TestWhatRefitsPartHasBrokenIsNotTheUpdaters(t *testing.T) {
	n := newSharedNode(t)
	req := request(1, "/etc/kubelet/a", "new")
	n.units.hook = func(context.Context, string) error { n.broken = true; return nil }
	n.note(req, "memory")
	require.Contains(t, n.fail(req).Message, "verify failed")
	req.Token = 2
	n.units.hook = func(context.Context, string) error { n.broken = false; return nil }
	n.note(req, "memory")
	n.succeed(req)
}

func TestUnitThatAnUpdaterHasBroken(t *testing.T) {
	n := newSharedNode(t)
	n.units.lasts = []string{"chrony.service", "motd.service", "was.service"}
	n.units.states["was.service"] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
	req := request(1, "/etc/quiet/a", "new")
	n.note(req, "memory")
	n.units.states["chrony.service"] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
	n.units.states["motd.service"] = host.UnitState{LoadState: "loaded", ActiveState: "inactive"}
	require.Contains(t, n.fail(req).Message, "can't take back: what systemd ran worked before and does not now: chrony.service has failed (see systemctl --failed on the node)")
	n.units.states["chrony.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	req.Token = 2
	n.succeed(req)
}

// TestNodeIsWatchedAfterUpdaters: before refit's own part where that is nothing to be watched for, and else once for both.
func TestNodeIsWatchedAfterUpdaters(t *testing.T) {
	const begun, watched, written = "step-started keep copies", "step-done watch the node", "step-done write File /etc/"
	for path, first := range map[string]bool{"quiet/a": true, "kubelet/a": false} {
		n := newSharedNode(t)
		req := request(1, "/etc/"+path, "new")
		req.Rules.Soak = new(20 * time.Second)
		n.note(req, "memory")
		n.succeed(req)
		events := n.events()
		require.Equal(t, 1, n.count(watched))
		require.Equal(t, first, slices.Index(events, watched) < slices.Index(events, begun), events)
	}
	n := newSharedNode(t)
	waits := 0
	n.useClock(hookClock{func() {
		waits++
		n.broken = waits > 3
	}})
	req := request(1, "/etc/quiet/a", "new")
	req.Rules.Soak = new(20 * time.Second)
	n.note(req, "memory")
	status := n.fail(req)
	require.Contains(t, status.Message, "watch the node failed: after the part of UpdaterRegistration memory, which refit can't take back: the network worked before")
	require.Equal(t, "old", n.content("/etc/quiet/a"))
	waits, req.Token = 0, 2
	n.note(req, "memory")
	require.Contains(t, n.fail(req).Message, "UpdaterRegistration memory", "what was broken at the end of it was not so before")
}

// TestNothingIsNotedForOthers than the server whose turn it is, nor in the middle of a run.
func TestNothingIsNotedForOthers(t *testing.T) {
	n := newSharedNode(t)
	n.succeed(request(5, "/etc/quiet/a", "new"))
	req := request(4)
	req.NoteFor = "memory"
	n.refuse(req, node.ReasonStale)
	req = request(6)
	req.NoteFor = "Memory, or what"
	n.refuse(req, node.ReasonInvalid)
	n.agent.cfg.Launcher = LauncherFunc(func(context.Context, string, string) error { return nil })
	n.apply(request(7, "/etc/quiet/a", "newer"))
	req = request(8)
	req.NoteFor = "memory"
	n.refuse(req, node.ReasonBusy)
	require.Equal(t, "(missing)", n.content("/var/lib/refit/works.json"))
}
