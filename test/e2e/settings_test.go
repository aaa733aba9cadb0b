//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// installBoot makes a machine one that update-grub can be run on: with a kernel, and with a disk, of which a fake of grub-probe tells. Of a
// container neither is there. Nothing boots what is made.
const installBoot = `set -e
probe=$(command -v grub-probe)
dpkg-divert --quiet --rename --add "$probe"
printf '%s\n' '#!/bin/sh' '# a fake' \
	'case "$*" in *fs_uuid*) echo 00000000-0000-0000-0000-000000000001;; *=fs*) echo ext2;; *device*) echo /dev/vda1;; *) echo;; esac' >"$probe"
chmod 755 "$probe"
mkdir -p /boot/grub /etc/default/grub.d
: >/boot/vmlinuz-6.1.0-e2e
: >/boot/initrd.img-6.1.0-e2e
printf 'GRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX=""\n' >/etc/default/grub
`

// grubEntry is what the boot loader's configuration has for the kernel, with an argument.
const grubEntry = `^[[:space:]]*linux[[:space:]].*vmlinuz-6\.1\.0-e2e.* audit=1( |$)`

// kernelSettings has the workers have a kernel parameter and a kernel argument in one change, and has both go again. A container can't boot with
// the argument: a policy leaves out the reboot.
func (u *suite) kernelSettings(ctx context.Context, t *testing.T) {
	const key, soak = "kernel.domainname", 5 * time.Second
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) {
		s.Soak = refitv1.SoakDuration(soak.String())
		s.Files = []refitv1.FileDisruption{{Path: "/etc/default/grub.d", Disruption: refitv1.Disruption{
			Actions: []refitv1.DisruptionAction{{Type: refitv1.RebuildBootloaderDisruption}}, Unsafe: true,
		}}}
	})
	for _, name := range workers {
		u.exec(ctx, t, name, "sh", "-c", installBoot)
		u.exec(ctx, t, name, "sysctl", "--quiet", "--write", key+"=before.example")
	}
	asked := time.Now()
	takeAway := u.workersFiles(ctx, t,
		file("/etc/sysctl.d/90-e2e.conf", key+" = after.example\n"),
		file("/etc/default/grub.d/50-e2e.cfg", "GRUB_CMDLINE_LINUX=\"audit=1\"\n"))
	u.rollOut(ctx, t, before)
	u.inTurn(ctx, t, workers, asked, soak)
	for _, name := range workers {
		require.Equal(t, "after.example", u.exec(ctx, t, name, "sysctl", "--values", key), name)
		u.exec(ctx, t, name, "grep", "--extended-regexp", "--quiet", grubEntry, "/boot/grub/grub.cfg")
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, []string{"Restart systemd-sysctl.service", "RebuildBootloader"}, mu.Status.Actions)
		require.Contains(t, strings.Join(mu.Status.Notes, "\n"), "unsafe", "the policy's entry is told")
	}

	asked = time.Now()
	takeAway()
	u.rollOut(ctx, t, before)
	u.inTurn(ctx, t, workers, asked, soak)
	for _, name := range workers {
		require.Equal(t, "before.example", u.exec(ctx, t, name, "sysctl", "--values", key), name)
		u.exec(ctx, t, name, "sh", "-c", "grep --quiet vmlinuz-6.1.0-e2e /boot/grub/grub.cfg && ! grep --quiet audit=1 /boot/grub/grub.cfg")
	}
}

// manageNetwork has systemd-networkd manage a machine's network as it is, as on a machine that boots with it: with the routes to other nodes' pods,
// which are lost with the address that it sets again when it configures the link. It leaves alone what is not its own, such as the
// routes to the pods of this node. Where /sys can't be written, as in most containers, it does not wait for udev.
const manageNetwork = `set -e
address=$(ip -4 -o address show dev eth0 scope global | awk '{ print $4; exit }')
gateway=$(ip -4 route show default dev eth0 | awk '{ print $3; exit }')
[ -n "$address" ] && [ -n "$gateway" ]
mkdir -p /etc/systemd/networkd.conf.d /etc/systemd/network /run/systemd/system/systemd-networkd.service.d
printf '[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n' >/etc/systemd/networkd.conf.d/e2e.conf
printf '[Service]\nReadOnlyPaths=/sys\n' >/run/systemd/system/systemd-networkd.service.d/e2e.conf
{
	printf '[Match]\nName=eth0\n[Network]\nAddress=%s\nGateway=%s\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n' "$address" "$gateway"
	ip -4 route show dev eth0 | awk '$2 == "via" && $1 != "default" { printf "[Route]\nDestination=%s\nGateway=%s\n", $1, $3 }'
} >/etc/systemd/network/10-eth0.network
configured() {
	for i in $(seq 60); do
		networkctl list --no-legend --no-pager eth0 | grep --quiet ' configured *$' && return
		sleep 1
	done
	networkctl list --no-legend --no-pager eth0 >&2
	return 1
}
systemctl daemon-reload
systemctl start systemd-networkd.service
configured
networkctl reconfigure eth0 # so that all routes are its own, as they are when it has done so once more
configured
`

// leaveNetwork takes that back. Addresses and routes stay.
const leaveNetwork = `systemctl stop systemd-networkd.socket systemd-networkd.service
rm -r /etc/systemd/networkd.conf.d/e2e.conf /etc/systemd/network/10-eth0.network /run/systemd/system/systemd-networkd.service.d
systemctl daemon-reload
`

// cutOff has a file of systemd-networkd send away what is for refit's host, on a worker that goes on to reach all else. Nobody but the node itself
// can put it back.
func (u *suite) cutOff(ctx context.Context, t *testing.T) {
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	routes := func(name string) string { return u.exec(ctx, t, name, "ip", "-4", "route", "show", "dev", "eth0") }
	was := map[string]string{}
	for _, name := range workers {
		t.Cleanup(func() {
			_, err := u.Fleet.Node(name).Exec(context.WithoutCancel(ctx), "sh", "-c", leaveNetwork)
			require.NoError(t, err)
		})
		u.exec(ctx, t, name, "sh", "-c", manageNetwork)
		was[name] = routes(name)
	}
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.ConfirmWithin = "30s" })
	host := u.exec(ctx, t, workers[0], "sh", "-c", "ip -4 route show default dev eth0 | awk '{ print $3; exit }'")
	nobody := host[:strings.LastIndexByte(host, '.')] + ".254"
	wrong := file("/etc/systemd/network/10-eth0.network.d/e2e.conf", fmt.Sprintf("[Route]\nDestination=%s/32\nGateway=%s\n", host, nobody))
	asked := time.Now()
	takeAway := u.workersFiles(ctx, t, wrong)
	failed := u.anyWorker(ctx, t, hasFailed)
	t.Logf("%s: %s", failed.Name, failed.Status.Message)
	require.Contains(t, failed.Status.Message, "refit could not log in to the node any more; the files were put back")
	u.nowhere(ctx, t, wrong.Path)
	for _, name := range workers {
		require.Equal(t, was[name], routes(name), name)
	}
	u.touchedOnly(ctx, t, failed, asked)
	u.takenBack(ctx, t, before, failed, takeAway)
}
