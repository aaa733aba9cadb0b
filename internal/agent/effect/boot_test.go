package effect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func newBoot(t *testing.T, files map[string]string) Boot {
	t.Helper()
	e := newEffects(t, files)
	programs, err := filepath.Glob(filepath.Join(e.Host.Dir, "/usr/sbin/*"))
	require.NoError(t, err)
	for _, p := range programs {
		require.NoError(t, os.Chmod(p, 0o755))
	}
	return Boot{Root: e.Host.Root}
}

func TestBooted(t *testing.T) {
	const grub = "menuentry a {\n\tlinux\t/boot/vmlinuz-2 root=/dev/vda1 ro audit=1 $extra\n}\nmenuentry old {\n\tlinux /boot/vmlinuz-1 root=/dev/vda1\n}\n"
	for name, tc := range map[string]struct {
		files  map[string]string
		before []string
		want   string // "": it was
	}{
		"as it is said":              {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-2 root=/dev/vda1 ro audit=1\n"}, nil, ""},
		"with what a variable had":   {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-2 root=/dev/vda1 ro audit=1 vt.handoff=7\n"}, nil, ""},
		"without one":                {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-2 root=/dev/vda1 ro\n"}, nil, "is missing audit"},
		"with one that is gone":      {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-2 root=/dev/vda1 ro audit=1 secret=x\n"}, []string{"secret=x"}, "is still secret"},
		"with more than is said":     {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-1 root=/dev/vda1 debug\n"}, nil, "is still debug"},
		"another kernel's":           {map[string]string{"/boot/grub/grub.cfg": grub, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-1 root=/dev/vda1\n"}, nil, ""},
		"an entry of its own":        {map[string]string{"/boot/loader/entries/a.conf": "title A\nlinux /vmlinuz-2\noptions root=/dev/vda1\noptions audit=1\n", "/proc/cmdline": "root=/dev/vda1 audit=1\n"}, nil, ""},
		"a variable of older RHEL":   {map[string]string{"/boot/loader/entries/a.conf": "linux /vmlinuz-2\noptions $kernelopts\n", "/boot/grub2/grubenv": "# GRUB\nkernelopts=root=/dev/vda1 audit=1\n", "/proc/cmdline": "BOOT_IMAGE=(hd0)/vmlinuz-2 root=/dev/vda1\n"}, nil, "is missing audit"},
		"nothing to compare it with": {map[string]string{"/proc/cmdline": "root=/dev/vda1\n"}, nil, "has no entry"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newBoot(t, tc.files).Booted(tc.before)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "secret=x", "values are not told")
		})
	}
}

// TestGrub2Mkconfig has the fake write down where Red Hat's program would write to.
func TestGrub2Mkconfig(t *testing.T) {
	const fake = "#!/bin/sh\n# a fake\nif [ \"$1\" = --help ]; then echo \"$HELP\"; else echo \"$*\" >\"$REFIT_ROOT/called\"; fi\n"
	for name, tc := range map[string]struct {
		files map[string]string
		help  string
		want  string
	}{
		"by BIOS":                      {map[string]string{}, "", "-o /boot/grub2/grub.cfg\n"},
		"by UEFI, all in the vendor's": {map[string]string{"/boot/efi/EFI/redhat/grub.cfg": "menuentry a\n"}, "", "-o /boot/efi/EFI/redhat/grub.cfg\n"},
		"by UEFI, a stub":              {map[string]string{"/boot/efi/EFI/fedora/grub.cfg": "configfile $prefix/grub.cfg\n"}, "", "-o /boot/grub2/grub.cfg\n"},
		"with entries of kernels":      {map[string]string{}, "--update-bls-cmdline", "-o /boot/grub2/grub.cfg --update-bls-cmdline\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.files["/usr/sbin/grub2-mkconfig"] = "#!/bin/sh\nHELP=" + tc.help + "\n" + fake
			b := newBoot(t, tc.files)
			require.NoError(t, b.RebuildLoader(t.Context(), []string{"/etc/default/grub"}))
			called, err := os.ReadFile(filepath.Join(b.Root.Dir, "called"))
			require.NoError(t, err)
			require.Equal(t, tc.want, string(called))
		})
	}
}

// TestArgumentsOfKernelInstall has the fake write one entry, whatever the file says.
func TestArgumentsOfKernelInstall(t *testing.T) {
	const at = "/etc/kernel/cmdline"
	b := newBoot(t, map[string]string{
		"/usr/sbin/kernel-install": "#!/bin/sh\n# a fake\nmkdir -p $REFIT_ROOT/boot/loader/entries\necho 'options root=/dev/vda1 audit=1' >$REFIT_ROOT/boot/loader/entries/a.conf\n",
		"/lib/modules/6.1/vmlinuz": "", at: "root=/dev/vda1 audit=1\n",
	})
	require.NoError(t, b.RebuildLoader(t.Context(), []string{at}))
	require.NoError(t, os.WriteFile(filepath.Join(b.Root.Dir, at), []byte("root=/dev/vda1 secret=x\n"), 0o600))
	err := b.RebuildLoader(t.Context(), []string{at})
	require.ErrorContains(t, err, at+" names secret, which is not in the configuration")
	require.NotContains(t, err.Error(), "secret=x", "values are not told")
}

func TestKernelInstall(t *testing.T) {
	b := newBoot(t, map[string]string{
		"/usr/sbin/kernel-install": "#!/bin/sh\n# a fake\necho \"$*\" >>\"$REFIT_ROOT/called\"\n", "/lib/modules/6.1/vmlinuz": "", "/lib/modules/6.2/modules.dep": "", "/boot/vmlinuz-6.2": "", "/lib/modules/5.0/modules.dep": "",
	})
	require.NoError(t, b.RebuildLoader(t.Context(), []string{"/etc/kernel/cmdline"}))
	called, err := os.ReadFile(filepath.Join(b.Root.Dir, "called"))
	require.NoError(t, err)
	require.Equal(t, "add 6.1 /lib/modules/6.1/vmlinuz\nadd 6.2 /boot/vmlinuz-6.2\n", string(called))
	require.ErrorContains(t, b.CheckLoader([]string{"/etc/default/grub"}), "which reads /etc/default/grub", "systemd-boot's program does not")
}
