package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func (n *testNode) script(path, text string) {
	n.t.Helper()
	n.put(path, "#!/bin/sh\n"+text)
	require.NoError(n.t, os.Chmod(filepath.Join(n.root, path), 0o755))
}

func TestActions(t *testing.T) {
	for name, tc := range map[string]struct {
		path   string
		states map[string]host.UnitState
		sshd   string
		calls  []string
		notes  []string
		fails  string
	}{
		"an active unit is reloaded": {
			path: "/etc/crio/a", calls: []string{"reload crio.service"},
		},
		"one that is not active is not": {
			path:   "/etc/crio/a",
			states: map[string]host.UnitState{"crio.service": {LoadState: "loaded", ActiveState: "inactive"}},
			notes:  []string{"crio.service is not active and was not reloaded"},
		},
		"an inactive unit is restarted": {
			path:   "/etc/kubelet/a",
			states: map[string]host.UnitState{"kubelet.service": {LoadState: "loaded", ActiveState: "inactive", Type: "oneshot"}},
			calls:  []string{"restart kubelet.service"},
		},
		"one that is not installed is not": {
			path:   "/etc/kubelet/a",
			states: map[string]host.UnitState{"kubelet.service": {LoadState: "not-found", ActiveState: "inactive"}},
			notes:  []string{"kubelet.service is not installed and was not restarted"},
		},
		"one that outlived its file is stopped": {
			path:   "/etc/systemd/system/a.service",
			states: map[string]host.UnitState{"a.service": {LoadState: "not-found", ActiveState: "active"}},
			calls:  []string{"daemon-reload", "stop a.service"},
			notes:  []string{"a.service no longer exists and was stopped"},
		},
		"a oneshot that failed fails the run": {
			path:   "/etc/kubelet/a",
			states: map[string]host.UnitState{"kubelet.service": {LoadState: "loaded", ActiveState: "failed", Type: "oneshot"}},
			calls: []string{
				"reset-failed kubelet.service", "restart kubelet.service", // failed before
				"reset-failed kubelet.service", "reset-failed kubelet.service", "restart kubelet.service",
			},
			fails: "kubelet.service is failed",
		},
		"a timer needs not be active": {
			path:   "/etc/systemd/system/a.timer",
			states: map[string]host.UnitState{"a.timer": {LoadState: "loaded", ActiveState: "inactive"}},
			calls:  []string{"daemon-reload", "restart a.timer"},
		},
		"the SSH server is reloaded after a test": {
			path: "/etc/ssh/a", sshd: "exit 0", calls: []string{"reload ssh.service"},
		},
		"under the name that it has": {
			path: "/etc/ssh/a", sshd: "exit 0", states: map[string]host.UnitState{"ssh.service": {LoadState: "not-found"}},
			calls: []string{"reload sshd.service"},
		},
		"not with a configuration that it does not accept": {
			path:  "/etc/ssh/a",
			sshd:  `a="$REFIT_ROOT/etc/ssh/a"; grep -q new "$a" 2>/dev/null || exit 0; cat "$a" >&2; exit 255`,
			calls: []string{"reload ssh.service"}, fails: "sshd -t does not accept the configuration: sshd: exit status 255",
		},
		"nor one that is started for each connection": {
			path: "/etc/ssh/a", sshd: `grep -q new "$REFIT_ROOT/etc/ssh/a" 2>/dev/null || exit 0; exit 255`,
			states: map[string]host.UnitState{"ssh.service": {LoadState: "loaded", ActiveState: "inactive"}},
			fails:  "sshd -t does not accept the configuration: sshd: exit status 255",
		},
		"nor one that has no unit of its own": {
			path: "/etc/ssh/a", sshd: `grep -q new "$REFIT_ROOT/etc/ssh/a" 2>/dev/null || exit 0; exit 255`,
			states: map[string]host.UnitState{"ssh.service": {LoadState: "not-found"}, "sshd.service": {LoadState: "not-found"}},
			fails:  "sshd -t does not accept the configuration: sshd: exit status 255",
		},
		"which is tested in the directory that its service would have": {
			path: "/etc/ssh/a", sshd: `test -d "$REFIT_ROOT/run/sshd"`,
			states: map[string]host.UnitState{"ssh.service": {LoadState: "loaded", ActiveState: "inactive"}},
			notes:  []string{"ssh.service is not active and was not reloaded"},
		},
		"and need not be there": {
			path: "/etc/ssh/a", states: map[string]host.UnitState{"ssh.service": {LoadState: "not-found"}, "sshd.service": {LoadState: "not-found"}},
			notes: []string{"ssh.service is not active and was not reloaded"},
		},
		"not without a test": {
			path: "/etc/ssh/a", fails: "the node has no /usr/sbin/sshd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.units.states = tc.states
			if tc.sshd != "" {
				n.script("/usr/sbin/sshd", tc.sshd)
			}
			status := n.apply(request(1, tc.path, "new secret"))
			assert.Equal(t, tc.calls, n.units.calls)
			if tc.fails != "" {
				assert.Equal(t, node.Failed, status.State)
				assert.Contains(t, status.Message, tc.fails)
				assert.NotContains(t, status.Message, "secret")
				return
			}
			assert.Equal(t, node.Succeeded, status.State, status.Message)
			assert.Equal(t, tc.notes, status.Notes)
		})
	}
}

// What a unit is can change with the files that a run brings: the plan could not see it.
func TestAUnitIsLookedAtAgainBeforeItIsActedOn(t *testing.T) {
	n := newTestNode(t)
	n.units.hook = func(_ context.Context, call string) error {
		if call == "daemon-reload" && n.content("/etc/systemd/system/a.service.d/x.conf") != "(missing)" {
			n.units.states = map[string]host.UnitState{"a.service": {LoadState: "loaded", ActiveState: "active", SuccessAction: "reboot"}}
		} else if call == "daemon-reload" {
			n.units.states = nil
		}
		return nil
	}
	status := n.fail(request(1, "/etc/systemd/system/a.service.d/x.conf", "[Unit]\nSuccessAction=reboot\n"))
	assert.Contains(t, status.Message, "SuccessAction=reboot")
	assert.True(t, status.RolledBack, status.Message)
	assert.Equal(t, []string{"daemon-reload", "daemon-reload", "reset-failed a.service", "restart a.service"}, n.units.calls, "it is restarted as it was before")
}

func TestAnActionThatHangsIsGivenUp(t *testing.T) {
	n := newTestNode(t)
	n.agent.cfg.ActionTimeout = 10 * time.Millisecond
	n.units.hook = func(ctx context.Context, _ string) error {
		if n.content("/etc/crio/a") == "new" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	status := n.fail(request(1, "/etc/crio/a", "new"))
	assert.Contains(t, status.Message, "not done after 10ms")
	assert.True(t, status.RolledBack)
}

func TestAServiceThatDoesNotStayUp(t *testing.T) {
	n := newTestNode(t)
	n.agent.cfg.Settle = time.Second
	n.useClock(crashLoop{n})
	status := n.fail(request(1, "/etc/kubelet/a", "new"))
	assert.Contains(t, status.Message, "kubelet.service does not stay up")
	assert.True(t, status.RolledBack, status.Message)
}

// crashLoop has systemd start the kubelet again while time passes, as long as its configuration is bad.
type crashLoop struct{ n *testNode }

func (crashLoop) Now() time.Time { return testClock{}.Now() }

func (c crashLoop) Wait(context.Context, time.Duration) error {
	if c.n.content("/etc/kubelet/a") == "new" {
		c.n.units.mu.Lock()
		defer c.n.units.mu.Unlock()
		c.n.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", InvocationID: "2"}
	}
	return nil
}

func TestSystemctl(t *testing.T) {
	n := newTestNode(t)
	require.NoError(t, os.Symlink("/usr/bin", filepath.Join(n.root, "bin")))
	n.script("/usr/bin/systemctl", `echo "$*" >>"$REFIT_ROOT/log"
case $1 in
show) printf 'Type=notify\nLoadState=loaded\nActiveState=active\nInvocationID=0a0b\n' ;;
stop) echo "a secret" >&2; exit 5 ;;
esac
`)
	units := host.FindSystemctl(n.agent.root)
	require.NotNil(t, units)
	ctx := context.Background()
	state, err := units.Show(ctx, "a.service")
	require.NoError(t, err)
	assert.Equal(t, host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "notify", InvocationID: "0a0b"}, state)
	require.NoError(t, units.Do(ctx, "daemon-reload", ""))
	require.NoError(t, units.Do(ctx, "restart", "a.service"))
	require.NoError(t, units.Do(ctx, "restart", "-.mount"))
	require.EqualError(t, units.Do(ctx, "stop", "a.service"), "exit status 5")
	assert.Equal(t, "show --property=LoadState,ActiveState,UnitFileState,Type,InvocationID,Names,SuccessAction,FailureAction a.service\ndaemon-reload\nrestart a.service\n"+
		"restart -- -.mount\nstop a.service\n", n.content("/log"))

	assert.Nil(t, host.FindSystemctl(host.Root{Dir: t.TempDir()}))
}

func TestPast(t *testing.T) {
	assert.Equal(t, "systemd's configuration reloaded", past(disruption.Action{Type: disruption.DaemonReload}))
}

func TestTransientUnit(t *testing.T) {
	n := newTestNode(t)
	n.script("/systemd-run", `echo "$*" >"$REFIT_ROOT/log"`)
	launcher := transientUnit{program: filepath.Join(n.root, "systemd-run"), executable: "/agent", root: n.root}
	require.NoError(t, launcher.Launch(context.Background(), unitName("sha256:0123456789abcdef", 42), verbRun))
	assert.Regexp(t, `^--unit=refit-sha256-01234-42 .*--collect .*--property=RuntimeMaxSec=6h -- /agent --root `+n.root+` run\n$`, n.content("/log"))

	n.script("/systemd-run", `exit 1`)
	require.ErrorContains(t, launcher.Launch(context.Background(), "refit-a-1", verbRun), "systemd-run of unit refit-a-1 failed: exit status 1")
}
