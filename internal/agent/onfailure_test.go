package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

var errRefused = errors.New("exit status 1")

// onFailure is a request with what becomes of a failure.
func onFailure(f disruption.OnFailure, token int64, pathsAndContents ...string) node.Request {
	req := request(token, pathsAndContents...)
	req.Digest = "digest"
	req.Rules.OnFailure = f
	return req
}

func TestStopOnFailure(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/kubelet/a", "old")
	n.units.fails["restart kubelet.service"] = errRefused
	status := n.fail(onFailure(disruption.StopOnFailure, 1, "/etc/kubelet/a", "new"))
	require.Equal(t, "new", n.content("/etc/kubelet/a"))
	require.False(t, status.RolledBack)
	require.False(t, status.NeedsReboot)
	require.Contains(t, status.Message, "begun: write /etc/kubelet/a, restart kubelet.service")
	require.Equal(t, []string{"restart kubelet.service"}, n.units.calls)

	t.Run("the next try does what is left, though no file differs", func(t *testing.T) {
		delete(n.units.fails, "restart kubelet.service")
		req := onFailure(disruption.StopOnFailure, 2, "/etc/kubelet/a", "new")
		plan := n.plan(req)
		require.Empty(t, plan.Changes)
		require.Equal(t, restartKubelet, plan.Actions)
		n.succeed(req)
		require.Equal(t, []string{"restart kubelet.service", "restart kubelet.service"}, n.units.calls)
	})
	t.Run("and nothing is left after it", func(t *testing.T) {
		require.Empty(t, n.plan(onFailure(disruption.StopOnFailure, 3, "/etc/kubelet/a", "new")).Actions)
	})
}

var restartKubelet = []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service"}}

func TestStopBeforeAnythingWasChanged(t *testing.T) {
	n := newTestNode(t)
	n.agent.cfg.Units = nil
	status := n.fail(onFailure(disruption.StopOnFailure, 1, "/etc/kubelet/a", "new"))
	require.True(t, status.RolledBack)
	require.Contains(t, status.Message, "nothing was changed on the node")
	require.Equal(t, "(missing)", n.content("/etc/kubelet/a"))
}

func TestRebootOnFailure(t *testing.T) {
	newNode := func(t *testing.T) *bootNode {
		b := newBootNode(newTestNode(t))
		b.put("/etc/kubelet/a", "old")
		b.units.fails["restart kubelet.service"] = errRefused
		return b
	}
	t.Run("the next run has the node reboot and read what was written", func(t *testing.T) {
		b := newNode(t)
		status := b.fail(onFailure(disruption.RebootOnFailure, 1, "/etc/kubelet/a", "new"))
		require.True(t, status.NeedsReboot)
		require.False(t, status.RolledBack)
		require.Equal(t, "new", b.content("/etc/kubelet/a"))
		req := onFailure(disruption.RebootOnFailure, 2, "/etc/kubelet/a", "new")
		require.Equal(t, []disruption.Action{{Type: disruption.Reboot}}, b.plan(req).Actions)
		require.True(t, b.apply(req).Rebooting)
		b.start()
		require.Equal(t, node.Succeeded, b.apply(req).State)
		require.Equal(t, 1, b.asked())
		require.Empty(t, b.plan(req).Actions)
	})
	t.Run("once: what does not help is not repeated", func(t *testing.T) {
		b := newNode(t)
		b.fail(onFailure(disruption.RebootOnFailure, 1, "/etc/kubelet/a", "new"))
		req := onFailure(disruption.RebootOnFailure, 2, "/etc/kubelet/a", "new")
		b.apply(req)
		b.start()
		b.units.system = "starting"
		status := b.fail(req)
		require.False(t, status.NeedsReboot)
		require.False(t, status.RolledBack)
		require.Contains(t, status.Message, "what an earlier run has changed stays on the node")
	})
	t.Run("not for what could not be made", func(t *testing.T) {
		b := newNode(t)
		b.units.fails["stop chrony.service"] = errRefused
		req := onFailure(disruption.RebootOnFailure, 1, "/etc/kubelet/a", "new")
		b.units.states["chrony.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
		req.Resources = append(req.Resources, node.Resource{Unit: &node.Unit{Name: "chrony.service", Active: new(false)}})
		status := b.fail(req)
		require.False(t, status.NeedsReboot)
		require.Equal(t, "old", b.content("/etc/kubelet/a"))
	})
}

func TestTimeoutOfAnAction(t *testing.T) {
	n := newTestNode(t)
	n.units.hook = func(ctx context.Context, call string) error {
		if call != "restart kubelet.service" {
			return nil
		}
		deadline, _ := ctx.Deadline()
		if time.Until(deadline) > 30*time.Second {
			return nil // the test's own timeout is a minute
		}
		<-ctx.Done()
		return ctx.Err()
	}
	req := request(1, "/etc/kubelet/a", "new")
	req.Rules.Files = disruption.Table{{Path: "/etc/kubelet", Actions: []disruption.Action{
		{Type: disruption.Restart, Unit: "kubelet.service", Timeout: 20 * time.Millisecond},
	}}}
	require.Contains(t, n.fail(req).Message, "restart kubelet.service failed: not done after 20ms")
}

func TestTrustStore(t *testing.T) {
	const debian, redHat, nobodys = "/usr/local/share/ca-certificates/a.crt", "/etc/pki/ca-trust/source/anchors/a.crt", "/etc/app/a.crt"
	update := []disruption.Action{{Type: disruption.TrustStoreUpdate}}
	authority := func(token int64, paths ...string) node.Request {
		req := request(token)
		for _, p := range paths {
			req.Resources = append(req.Resources, wanted(p, "certificate"))
			req.Rules.Files = append(req.Rules.Files, disruption.Rule{Path: p, Actions: update})
		}
		return req
	}
	t.Run("of a node that has none nothing is changed", func(t *testing.T) {
		n := newTestNode(t)
		require.Contains(t, n.refuse(authority(1, nobodys), node.ReasonBlocked), "neither update-ca-certificates nor update-ca-trust")
		require.Equal(t, "(missing)", n.content(nobodys))
	})
	for name, tc := range map[string]struct {
		programs, paths []string
		called          string
	}{
		"by the program of Debian":                   {[]string{"update-ca-certificates"}, []string{debian}, "update-ca-certificates \n"},
		"by the program of Red Hat":                  {[]string{"update-ca-trust"}, []string{redHat}, "update-ca-trust extract\n"},
		"by the one that there is":                   {[]string{"update-ca-trust"}, []string{nobodys}, "update-ca-trust extract\n"},
		"by the one that reads the file":             {[]string{"update-ca-certificates", "update-ca-trust"}, []string{redHat}, "update-ca-trust extract\n"},
		"by both, where each reads one of the files": {[]string{"update-ca-certificates", "update-ca-trust"}, []string{redHat, debian}, "update-ca-certificates \nupdate-ca-trust extract\n"},
	} {
		t.Run("is updated "+name, func(t *testing.T) {
			n := newTestNode(t)
			for _, p := range tc.programs {
				n.program(p, `echo `+p+` "$*" >>"$REFIT_ROOT/called"`)
			}
			n.succeed(authority(1, tc.paths...))
			require.Equal(t, tc.called, n.content("/called"))
		})
	}
	t.Run("is not updated by a program that does not read the file", func(t *testing.T) {
		n := newTestNode(t)
		n.program("update-ca-certificates", "true")
		require.Contains(t, n.refuse(authority(1, redHat), node.ReasonBlocked), "the node has no update-ca-trust, which reads "+redHat)
		require.Equal(t, "(missing)", n.content(redHat))
	})
	t.Run("is updated again when it fails, without the file", func(t *testing.T) {
		n := newTestNode(t)
		n.program("update-ca-certificates", `echo once >>"$REFIT_ROOT/called"; [ ! -e "$REFIT_ROOT/usr/local/share/ca-certificates/a.crt" ] || { echo no certificate >&2; exit 1; }`)
		status := n.fail(authority(1, debian))
		require.True(t, status.RolledBack, status.Message)
		require.Contains(t, status.Message, "no certificate")
		require.Equal(t, "once\nonce\n", n.content("/called"))
	})
}
