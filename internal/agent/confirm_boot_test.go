package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func TestADirectoryThatStandsForANodeHasTheMachinesUptime(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	require.NoError(t, os.RemoveAll(filepath.Join(n.root, "proc")))
	boot, up, err := uptimeOf(n.agent.root)
	require.NoError(t, err)
	machines, _, err := uptimeOf(host.Root{Dir: "/"})
	require.NoError(t, err)
	require.Equal(t, machines, boot)
	require.Positive(t, up)

	n.put("/proc/1/stat", "")
	require.Contains(t, n.fail(req).Message, "arm the way back failed: one boot of the node can't be told from another", "a /proc that is there counts")
}

func TestResume(t *testing.T) {
	t.Run("ends its watch where there is nothing to watch over", func(t *testing.T) {
		n := newTestNode(t)
		n.watch.armed = true
		require.NoError(t, n.agent.Resume(t.Context()))
		require.False(t, n.watch.armed)
	})
	t.Run("leaves a run alone that somebody works on", func(t *testing.T) {
		n, req := guardedNode(t, t.TempDir())
		n.at("before verify", func() { require.NoError(t, n.newAgent().Resume(t.Context())) })
		n.succeed(req)
		require.Equal(t, 1, n.count("login-awaited "+stepConfirm)-1)
	})
}

func TestWayIn(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/ssh/sshd_config", "Include /opt/conf/*.conf\nInclude below/x\nTrustedUserCAKeys /opt/ca.pub\n#Banner /opt/banner\nMatch User x\n  AuthorizedPrincipalsFile=/opt/principals/%u\n")
	n.put("/opt/conf/a.conf", "AuthorizedKeysFile \"/opt/keys/%u\" .ssh/authorized_keys\n")
	n.put("/etc/ssh/below/x", "RevokedKeys /opt/revoked\n")
	n.put("/etc/sudoers", "#includedir /opt/sudo\n@include more\n# includes /opt/nothing\n")
	n.put("/etc/more", "Defaults secure_path=/opt/path\n")
	n.put("/etc/sysctl.d/10.conf", "net.ipv4.ip_forward = 1\n")
	n.put("/opt/real", "")
	require.NoError(t, errors.Join(
		os.MkdirAll(filepath.Join(n.root, "/opt/away"), 0o755), os.Symlink("/opt/away", filepath.Join(n.root, "/etc/security")),
		os.Symlink("/etc/ssh/below", filepath.Join(n.root, "/opt/linked")),
		os.Symlink("/opt/real", filepath.Join(n.root, "/opt/conf/z.conf")),
	))
	file := func(p string) node.Change { return node.Change{Ref: node.FileRef(p)} }
	restart := func(unit string) node.Change {
		return node.Change{Ref: node.FileRef("/etc/quiet/a"), Actions: []disruption.Action{{Type: disruption.Restart, Unit: unit}}}
	}
	for _, c := range []node.Change{
		file("/etc/ssh/sshd_config.d/x.conf"), file("/etc/ssh/authorized_keys.d/x"), file("/etc/sudoers"), file("/etc/sudoers.d/x"), file("/etc/pam.d/sshd"),
		file("/etc/security/access.conf"), file("/etc/nsswitch.conf"), file("/etc/passwd"), file("/etc/shadow"), file("/etc/group"),
		file("/home/x/.ssh/authorized_keys"), file("/srv/authorized_keys2"), file("/etc/netplan/x.yaml"), file("/etc/systemd/network/x.network"),
		file("/etc/NetworkManager/system-connections/x"), file("/etc/network/interfaces"), file("/etc/resolv.conf"), file("/etc/hosts.deny"),
		file("/etc/nftables.conf"), file("/etc/iptables/rules.v4"), file("/etc/ufw/x"), file("/etc/firewalld/x"), file("/etc/refit/agent-signers"),
		file("/opt/conf/a.conf"), file("/opt/conf/new.conf"), file("/opt/ca.pub"), file("/opt/principals/ops"), file("/opt/keys/ops"), file("/opt/revoked"),
		file("/opt/sudo/x"), file("/opt/path/x"), file("/opt/linked/x"), file("/opt/real"),
		file("/etc/sysctl.d/10.conf"), file("/etc/sysctl.d/20.conf"),
		file("/etc/systemd/system/ssh.service.d/x.conf"), file("/etc/systemd/system/sshd@.service"), file("/etc/systemd/system/ssh.socket"), file("/etc/systemd/system/nftables.service"),
		{Ref: node.Ref{Kind: node.UserKind, Name: "x"}}, {Ref: node.Ref{Kind: node.UnitKind, Name: "systemd-networkd.service"}},
		restart("ssh.service"), restart("sshd.service"), restart("ssh.socket"), restart("systemd-networkd.service"), restart("nftables.service"),
	} {
		w := work{Plan: node.Plan{Changes: []node.Change{c}}, Contents: map[string][]byte{"/etc/sysctl.d/20.conf": []byte("net.core.somaxconn=1")}}
		require.NotEmpty(t, n.agent.wayIn(&w), "%s %v", c, c.Actions)
		w.Plan.Actions = []disruption.Action{{Type: disruption.Reboot}}
		require.NotEmpty(t, n.agent.wayIn(&w), "%s, with a reboot", c)
	}
	for _, c := range []node.Change{
		file("/etc/motd"), file("/etc/containerd/config.toml"), file("/etc/kubernetes/manifests/x.yaml"), file("/etc/systemd/system/app.service.d/x.conf"),
		file("/etc/sysctl.d/30.conf"), file("/etc/passwords"), file("/opt/banner"), file("/opt/nothing"), file("/opt/other"),
		{Ref: node.Ref{Kind: node.NTPKind}}, {Ref: node.Ref{Kind: node.KubeletKind}}, {Ref: node.Ref{Kind: node.ControlPlaneKind}}, {Ref: node.Ref{Kind: node.VersionKind}},
		{Ref: node.Ref{Kind: node.UnitKind, Name: "app.service"}}, restart("kubelet.service"), restart("systemd-sysctl.service"),
	} {
		w := work{Plan: node.Plan{Changes: []node.Change{c}, Actions: []disruption.Action{{Type: disruption.Reboot}}}, Contents: map[string][]byte{"/etc/sysctl.d/30.conf": []byte("vm.x=1")}}
		require.Empty(t, n.agent.wayIn(&w), "%s %v", c, c.Actions)
	}
}

// asking has each process on a node that is booted ask a probe of the test's.
func (b *bootNode) asking(ask func() error) {
	b.agent.probes = func(bool) []probe.Probe {
		return []probe.Probe{probe.New(probe.Endpoint, func(context.Context) error { return ask() })}
	}
}

func TestANodeThatFindsItsNetworkGoneAfterARebootIsBootedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		login   func(n *testNode) // when the run has failed
		soak    time.Duration
		step    string
		boots   int
		message string
	}{
		"when it verifies":         {nil, 0, stepVerify, 3, "then refit could not log in any more; the files were put back, and the node was rebooted with that"},
		"after somebody came in":   {nil, time.Minute, stepSoak, 3, "then refit could not log in any more; the files were put back, and the node was rebooted with that"},
		"not where refit comes in": {(*testNode).logIn, 0, stepVerify, 2, rebootOnceMore},
	} {
		t.Run(name, func(t *testing.T) {
			n := layOut(t, t.TempDir())
			n.succeed(request(1, "/etc/nftables/a.conf", "old", "/etc/kubelet/a", "old"))
			b := newBootNode(n)
			gone := false
			ask := func() error {
				if gone {
					return errors.New("no route to host")
				}
				return nil
			}
			b.asking(ask)
			b.login = nil
			req := request(2, "/etc/nftables/a.conf", "drop", "/etc/kubelet/a", "new", "/etc/boot/a", "new", "/etc/quiet/b", "new")
			req.Rules.Soak = &tc.soak
			require.True(t, b.apply(req).Rebooting)
			next := func() {
				if b.due {
					b.start()
				} else {
					b.newProcess()
				}
				b.asking(ask)
				gone = b.boots == 2 && tc.soak == 0
				b.login = nil
				if tc.login != nil {
					b.login = func() { tc.login(b.testNode) }
				}
				if tc.soak > 0 && b.boots == 2 {
					b.login = func() { b.logIn(); b.login = nil; gone = true }
				}
			}
			next()
			status := b.alone(next)
			require.Equal(t, tc.step, status.Step)
			require.Contains(t, status.Message, tc.message)
			require.Equal(t, "old", b.content("/etc/nftables/a.conf"))
			require.Equal(t, tc.boots, b.boots)
			require.Equal(t, tc.boots == 3, status.RolledBack)
			require.False(t, b.watch.armed)
		})
	}
}

func TestANodeThatIsStoppedAfterALoginIsAskedForOneMore(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	gone, minute := false, time.Minute
	n.agent.probes = func(bool) []probe.Probe {
		return []probe.Probe{probe.New("it", func(context.Context) error {
			if gone && n.content("/etc/nftables/a.conf") == "drop" {
				return errors.New("no route to host")
			}
			return nil
		})}
	}
	req.Rules.OnFailure, req.Rules.Soak = disruption.StopOnFailure, &minute
	n.login = func() { n.logIn(); n.login = nil; gone = true }
	status := n.fail(req)
	require.Equal(t, stepSoak, status.Step)
	n.requireBack(status, "")
	require.Contains(t, status.Message, "then refit could not log in any more; the files were put back")
}

// TestWhatPuttingBackDoesNotUndoABootDoes has a setting of the kernel's take the routes away, which stay away when the setting is put back.
func TestWhatPuttingBackDoesNotUndoABootDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		login   bool
		boots   int
		back    bool
		message string
	}{
		"where nobody comes in": {false, 2, true, "the files were put back and kubelet.service restarted, and the node was rebooted with that"},
		"not where refit does":  {true, 1, false, "see that the node works again failed: the way to the API server worked before and does not now: no route to host"},
	} {
		t.Run(name, func(t *testing.T) {
			b, ask, gone := cutOffNode(t)
			if tc.login {
				b.login = func() { b.logIn() }
			}
			_ = b.apply(request(2, "/etc/kubelet/a", "new"))
			for b.due {
				*gone = false
				b.start()
				b.asking(ask)
				require.NoError(t, b.agent.Resume(t.Context()))
			}
			last, err := b.agent.state.loadStatus()
			require.NoError(t, err)
			require.Equal(t, node.Failed, last.Status.State, last.Status.Message)
			require.Equal(t, tc.back, last.Status.RolledBack, last.Status.Message)
			require.Contains(t, last.Status.Message, tc.message)
			require.Equal(t, tc.boots, b.boots)
			require.Equal(t, "old", b.content("/etc/kubelet/a"))
			require.False(t, b.watch.armed)
		})
	}
}

// TestARunThatActsAwaitsALogin, whatever it acts on, and also where a policy would leave the node to its next boot.
func TestARunThatActsAwaitsALogin(t *testing.T) {
	for name, rule := range map[string]disruption.OnFailure{"that is put back": "", "that would be left to a reboot": disruption.RebootOnFailure} {
		t.Run(name, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			b.succeed(request(1, "/etc/crio/a", "old"))
			b.login = nil
			req := request(2, "/etc/crio/a", "new")
			req.Rules.OnFailure = rule
			status := b.fail(req)
			require.True(t, status.RolledBack, status.Message)
			require.Contains(t, status.Message, "refit could not log in")
			require.Equal(t, "old", b.content("/etc/crio/a"))
			require.Equal(t, 1, b.boots, "the node works, so it is not rebooted because refit is away")
		})
	}
}
