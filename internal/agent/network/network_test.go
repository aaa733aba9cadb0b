package network

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
)

// noClock lets no time pass.
type noClock struct{}

func (noClock) Now() time.Time { return time.Time{} }

func (noClock) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// newNetwork is a node all of whose programs are fakes, which write down how they are called and do what script says.
func newNetwork(t *testing.T, files, programs map[string]string) Network {
	t.Helper()
	n := Network{Host: host.Host{Root: host.Root{Dir: t.TempDir()}, Clock: noClock{}}}
	put := func(p, content string, mode os.FileMode) {
		at := filepath.Join(n.Host.Dir, p)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(content), mode))
		require.NoError(t, os.Chmod(at, mode))
	}
	for p, content := range files {
		put(p, content, 0o600)
	}
	for name, script := range programs {
		put("/usr/sbin/"+name, "#!/bin/sh\n# a fake\necho "+name+" \"$*\" >>\"$REFIT_ROOT/called\"\n"+script+"\n", 0o755)
	}
	return n
}

func (n Network) called(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.Host.Dir, "called"))
	require.NoError(t, err)
	return string(data)
}

func TestNetworkd(t *testing.T) {
	const list = `[ "$1" != list ] || printf '  1 lo loopback carrier unmanaged\n  2 eth0 ether routable configured\n  3 eth1 ether routable configured\n  4 cali1 ether degraded unmanaged\n'`
	const device, file = "/etc/systemd/network/10-br0.netdev", "/etc/systemd/network/20-eth0.network"
	t.Run("links that a file is about", func(t *testing.T) {
		n := newNetwork(t, map[string]string{file: "[Match]\nName=eth0\n"}, map[string]string{"networkctl": list})
		_, err := n.Reload(t.Context(), []File{{Path: file, After: []byte("[Match]\nName=eth0\n")}})
		require.NoError(t, err)
		require.Equal(t, "networkctl reload\nnetworkctl list --no-legend --no-pager\nnetworkctl reconfigure eth0\nnetworkctl list --no-legend --no-pager\n", n.called(t))
	})
	t.Run("a file that names none is about all that are managed", func(t *testing.T) {
		n := newNetwork(t, nil, map[string]string{"networkctl": list})
		_, err := n.Reload(t.Context(), []File{{Path: file, Before: []byte("[Match]\nMACAddress=00:00:5e:00:53:01\n")}})
		require.NoError(t, err)
		require.Contains(t, n.called(t), "networkctl reconfigure eth0 eth1\n")
	})
	t.Run("a device whose file is gone goes", func(t *testing.T) {
		n := newNetwork(t, map[string]string{"/sys/class/net/br0/address": ""}, map[string]string{"networkctl": ""})
		_, err := n.Reload(t.Context(), []File{{Path: device, After: []byte("[NetDev]\nName=br0\nKind=bridge\n")}})
		require.NoError(t, err)
		require.Contains(t, n.called(t), "networkctl delete br0\n")
	})
	t.Run("a link that fails", func(t *testing.T) {
		n := newNetwork(t, nil, map[string]string{"networkctl": `[ "$1" != list ] || echo ' 2 eth0 ether degraded failed'`})
		_, err := n.Reload(t.Context(), []File{{Path: file, After: []byte("[Match]\nName=eth0\n")}})
		require.EqualError(t, err, "eth0 is failed (see networkctl status eth0 on the node)")
	})
	t.Run("a link that does not come up", func(t *testing.T) {
		n := newNetwork(t, nil, map[string]string{"networkctl": `[ "$1" != list ] || echo ' 2 eth0 ether degraded configuring'`})
		_, err := n.Reload(t.Context(), []File{{Path: file, After: []byte("[Match]\nName=eth0\n")}})
		require.EqualError(t, err, "after 60 seconds eth0 is configuring (see networkctl status on the node)")
	})
}

func TestNetworkManager(t *testing.T) {
	const dir = "/etc/NetworkManager/system-connections/"
	n := newNetwork(t, map[string]string{
		dir + "a.nmconnection": "[connection]\nid=a\nuuid=11\n[ipv4]\nid=other\n",
		dir + "b.nmconnection": "[connection]\nid=b\nautoconnect=false\n",
		dir + "c.nmconnection": "[connection]\ntype=ethernet\n",
	}, map[string]string{"nmcli": ""})
	_, err := n.Reload(t.Context(), []File{{Path: dir + "a.nmconnection"}, {Path: dir + "b.nmconnection"}, {Path: dir + "c.nmconnection"}, {Path: dir + "gone.nmconnection"}})
	require.NoError(t, err)
	require.Equal(t, "nmcli connection reload\nnmcli connection up uuid 11\nnmcli connection up id c\n", n.called(t))
}

func TestIfupdown(t *testing.T) {
	const file = "/etc/network/interfaces.d/a"
	const defined = `case "$*" in *-i*) cat >>"$REFIT_ROOT/called";; esac; exit 1`
	before, now := "auto eth2\niface eth2 inet dhcp\n", "auto lo eth0\niface eth0 inet dhcp\nallow-hotplug eth1\n"
	changed := []File{{Path: file, Before: []byte(before), After: []byte(now)}}
	n := newNetwork(t, map[string]string{file: now}, map[string]string{"ifup": "", "ifdown": defined})
	_, err := n.Reload(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, "ifdown --force -i /dev/stdin eth2\n"+before+
		"ifdown --force eth0\nifdown --force eth1\nifdown --force eth2\nifup --force eth0\nifup --force eth1\n", n.called(t))
	n = newNetwork(t, nil, map[string]string{"ifup": "", "ifdown": defined})
	_, err = n.Reload(t.Context(), []File{{Path: file, After: []byte(before)}})
	require.NoError(t, err)
	require.Equal(t, "ifdown --force -i /dev/stdin eth2\n"+before+"ifdown --force eth2\n", n.called(t), "a file that is taken back")
	n = newNetwork(t, map[string]string{file: now}, map[string]string{"ifup": "", "ifdown": "", "ifreload": ""})
	_, err = n.Reload(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, "ifreload -a\n", n.called(t))
}

// TestIfupdownInAScope has systemd be there: what brings up an interface leaves a DHCP client behind, which is to outlive the run.
func TestIfupdownInAScope(t *testing.T) {
	const file, systemd = "/etc/network/interfaces", "/run/systemd/system/x"
	const inScope = `while [ "$1" != -- ]; do shift; done; shift; "$REFIT_ROOT/usr/sbin/$@"`
	const scope = "systemd-run --scope --quiet --collect --no-ask-password -- "
	changed := []File{{Path: file, After: []byte("auto eth0\n")}}
	programs := map[string]string{"ifup": "exit 3", "ifdown": "", "systemd-run": inScope}
	n := newNetwork(t, map[string]string{file: "auto eth0\n", systemd: ""}, programs)
	_, err := n.Reload(t.Context(), changed)
	require.ErrorContains(t, err, "ifup eth0: systemd-run: exit status 3", "as ifup has ended")
	require.Equal(t, "ifdown --force eth0\n"+scope+"ifup --force eth0\nifup --force eth0\n", n.called(t))

	n = newNetwork(t, map[string]string{file: "auto eth0\n"}, programs)
	_, err = n.Reload(t.Context(), changed)
	require.ErrorContains(t, err, "ifup eth0: ifup: exit status 3", "a node without systemd")

	n = newNetwork(t, map[string]string{systemd: ""}, map[string]string{"ifreload": "", "systemd-run": ""})
	_, err = n.Reload(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, scope+"ifreload -a\n", n.called(t))
}

// TestNetplanTakesDownWhatIsGone has a fake that takes down what it finds that it has made before, as netplan does.
func TestNetplanTakesDownWhatIsGone(t *testing.T) {
	const made, file = "/run/systemd/network/10-netplan-br0.network", "/etc/netplan/50.yaml"
	n := newNetwork(t, map[string]string{made: ""}, map[string]string{"netplan": `case $1 in
generate) rm -f "$REFIT_ROOT` + made + `";;
apply) [ ! -e "$REFIT_ROOT` + made + `" ] || echo taken down >>"$REFIT_ROOT/called"; rm -f "$REFIT_ROOT` + made + `";;
esac`})
	_, err := n.Reload(t.Context(), []File{{Path: file, Before: []byte("network: {}")}})
	require.NoError(t, err)
	require.Contains(t, n.called(t), "taken down\n")
}

func TestWhoReadsTheFiles(t *testing.T) {
	n := newNetwork(t, map[string]string{"/etc/netplan/a.yaml": ""}, map[string]string{"netplan": "", "nmcli": ""})
	require.NoError(t, n.Check([]string{"/etc/app/net.conf"}), "nobody's own: whoever manages the network here")
	require.ErrorContains(t, n.Check([]string{"/etc/network/interfaces"}), "the node has no ifreload and no ifup, which reads /etc/network/interfaces")
	require.ErrorContains(t, newNetwork(t, nil, nil).Check(nil), "the node has nothing that manages its network")
}
