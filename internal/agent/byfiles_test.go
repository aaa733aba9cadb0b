package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

const (
	grubFile  = "/etc/default/grub.d/50-audit.cfg"
	grubText  = "GRUB_CMDLINE_LINUX=\"audit=1\"\n"
	bootedOld = "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/vda1 ro quiet\n"
	bootedNew = "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/vda1 ro quiet audit=1\n"
)

// grubNode is a node whose update-grub is a fake, which puts together what the real one would.
func grubNode(t *testing.T) *bootNode {
	t.Helper()
	b := newBootNode(newTestNode(t))
	b.put("/proc/cmdline", bootedOld)
	b.program("update-grub", `mkdir -p "$REFIT_ROOT/boot/grub"
args=$(cat "$REFIT_ROOT"/etc/default/grub.d/*.cfg 2>/dev/null | sed -n 's/^GRUB_CMDLINE_LINUX="\(.*\)"$/\1/p')
printf 'menuentry Linux {\n  linux /boot/vmlinuz-6.1 root=/dev/vda1 ro quiet %s\n}\nmenuentry Rescue {\n  linux /boot/vmlinuz-6.1 root=/dev/vda1 ro single\n}\n' "$args" >"$REFIT_ROOT/boot/grub/grub.cfg" # a fake`)
	return b
}

func TestAnArgumentOfTheKernelArrives(t *testing.T) {
	b := grubNode(t)
	req := builtin(1, grubFile, grubText)
	require.True(t, b.apply(req).Rebooting)
	require.Contains(t, b.content("/boot/grub/grub.cfg"), "quiet audit=1")
	b.put("/proc/cmdline", bootedNew)
	b.start()
	status := b.succeed(req)
	require.Equal(t, "changed 1 file, then: rebuild the boot loader's configuration, reboot", status.Message)

	req = builtin(2)
	require.True(t, b.apply(req).Rebooting)
	require.NotContains(t, b.content("/boot/grub/grub.cfg"), "audit")
	b.put("/proc/cmdline", bootedOld)
	b.start()
	b.succeed(req)
}

func TestAnArgumentThatDoesNotArriveFails(t *testing.T) {
	b := grubNode(t)
	req := builtin(1, grubFile, grubText)
	require.True(t, b.apply(req).Rebooting)
	b.start()
	status := b.fail(req)
	require.Contains(t, status.Message, "the kernel was not booted as the boot loader's configuration says: in /proc/cmdline is missing audit (see")
	require.Contains(t, status.Message, "the files were put back and the boot loader's configuration rebuilt")
	require.Equal(t, "(missing)", b.content(grubFile))
	require.NotContains(t, b.content("/boot/grub/grub.cfg"), "audit")
}

func TestABootLoaderThatDoesNotReadTheFileFailsBeforeTheReboot(t *testing.T) {
	b := grubNode(t)
	b.program("update-grub", `mkdir -p "$REFIT_ROOT/boot/grub"; echo 'linux /vmlinuz-6.1 ro' >"$REFIT_ROOT/boot/grub/grub.cfg" # a fake`)
	status := b.fail(builtin(1, grubFile, grubText))
	require.Contains(t, status.Message, grubFile+" names audit, which is not in the configuration that was made of it")
	require.True(t, status.RolledBack)
	require.Zero(t, b.asked())
}

func TestNothingIsWrittenThatNothingReads(t *testing.T) {
	for file, want := range map[string]string{
		grubFile:                                 "the node has no update-grub and no grub2-mkconfig and no grub-mkconfig, which reads " + grubFile,
		"/etc/dracut.conf.d/a.conf":              "the node has no dracut, which reads /etc/dracut.conf.d/a.conf",
		"/etc/initramfs-tools/modules":           "the node has no update-initramfs, which reads /etc/initramfs-tools/modules",
		"/etc/netplan/50.yaml":                   "the node has no netplan, which reads /etc/netplan/50.yaml",
		"/etc/pki/ca-trust/source/anchors/a.crt": "the node has no update-ca-trust, which reads /etc/pki/ca-trust/source/anchors/a.crt",
		"/usr/local/share/ca-certificates/a.crt": "the node has no update-ca-certificates, which reads /usr/local/share/ca-certificates/a.crt",
		"/etc/systemd/network/a.network":         "the node has no networkctl, which reads /etc/systemd/network/a.network",
	} {
		t.Run(file, func(t *testing.T) {
			n := newTestNode(t)
			require.Equal(t, "nothing was changed: "+want, n.refuse(builtin(1, file, "x\n"), node.ReasonBlocked))
			require.Equal(t, "(missing)", n.content(file))
		})
	}
}

// TestProgramsOfOtherDistributions has files come and go that Debian's programs do not read.
func TestProgramsOfOtherDistributions(t *testing.T) {
	for file, tc := range map[string]struct{ program, args string }{
		"/etc/mkinitcpio.conf":          {"mkinitcpio", "-P"},
		"/etc/mkinitcpio.conf.d/a.conf": {"mkinitcpio", "-P"},
		"/etc/kernelstub/configuration": {"kernelstub", ""},
	} {
		t.Run(file, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			b.put("/proc/cmdline", bootedOld)
			b.put("/boot/efi/loader/entries/row.conf", "options root=/dev/vda1 ro quiet\n") // which kernelstub changes
			b.program(tc.program, `echo "$* with $(cat "$REFIT_ROOT`+file+`" 2>&1)" >"$REFIT_ROOT/made" # a fake`)
			req := builtin(1, file, "one\n")
			require.True(t, b.apply(req).Rebooting)
			require.Equal(t, tc.args+" with one\n", b.content("/made"))
			b.start()
			b.succeed(req)

			req = builtin(2)
			require.True(t, b.apply(req).Rebooting)
			require.Contains(t, b.content("/made"), "No such file")
			b.start()
			b.succeed(req)
		})
	}
}

func TestInitramfs(t *testing.T) {
	const file = "/etc/modprobe.d/kvm.conf"
	req := builtin(1, file, "options kvm nested=1\n")
	t.Run("it is made before the reboot, and again when the parameter does not come", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.program("update-initramfs", `echo "$* with $(cat "$REFIT_ROOT`+file+`" 2>&1)" >>"$REFIT_ROOT/made" # a fake`)
		require.True(t, b.apply(req).Rebooting)
		require.Equal(t, "-u with options kvm nested=1\n", b.content("/made"))
		b.put("/sys/module/kvm/parameters/nested", "N\n")
		b.start()
		require.Contains(t, b.fail(req).Message, `/sys/module/kvm/parameters/nested is "N" after the reboot, and /etc/modprobe.d/kvm.conf says "1"`)
		require.Equal(t, 2, strings.Count(b.content("/made"), "-u with"))
	})
	t.Run("a node without one", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		require.True(t, b.apply(req).Rebooting)
		b.start()
		require.Equal(t, []string{"the node makes no initramfs, so none was made again"}, b.succeed(req).Notes)
	})
}

func TestANetworkIsConfirmed(t *testing.T) {
	const file = "/etc/netplan/50.yaml"
	newNode := func(t *testing.T) *testNode {
		t.Helper()
		n := newTestNode(t)
		n.program("netplan", `echo "$1 $(cat "$REFIT_ROOT`+file+`" 2>/dev/null)" >>"$REFIT_ROOT/netplan-calls" # a fake`)
		n.put(file, "network: old")
		return n
	}
	t.Run("a login comes", func(t *testing.T) {
		n := newNode(t)
		status := n.succeed(builtin(1, file, "network: new"))
		require.Equal(t, "changed 1 file, then: reload the network", status.Message)
		require.Equal(t, "apply network: new\n", n.content("/netplan-calls"))
		require.Contains(t, n.events(), "login-awaited confirm the way in")
	})
	t.Run("none comes", func(t *testing.T) {
		n := newNode(t)
		n.login = nil
		status := n.fail(builtin(1, file, "network: new"))
		require.Contains(t, status.Message, "refit could not log in to the node any more; the files were put back and the network reloaded")
		require.True(t, status.RolledBack)
		require.Equal(t, "network: old", n.content(file))
		require.Equal(t, "apply network: new\napply network: old\n", n.content("/netplan-calls"))
	})
	t.Run("what can't be parsed is put back", func(t *testing.T) {
		n := newNode(t)
		n.program("netplan", `echo "$1" >>"$REFIT_ROOT/netplan-calls"; grep -q old "$REFIT_ROOT`+file+`" # a fake`)
		status := n.fail(builtin(1, file, "network: bad"))
		require.Equal(t, node.Failed, status.State)
		require.Contains(t, status.Message, "netplan apply: ")
		require.Equal(t, "apply\napply\n", n.content("/netplan-calls"))
	})
}
