package effect

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// Boot makes again what a node boots with.
type Boot struct{ Root host.Root }

// bootTool is a program that makes something again, and the files that are its own.
type bootTool struct {
	program string
	args    []string
	files   []string
}

var initramfsTools = []bootTool{
	{program: "update-initramfs", args: []string{"-u"}, files: []string{"/etc/initramfs-tools"}},
	{program: "dracut", args: []string{"--force", "--regenerate-all"}, files: []string{"/etc/dracut.conf", "/etc/dracut.conf.d"}},
	{program: "mkinitcpio", args: []string{"-P"}, files: []string{"/etc/mkinitcpio.conf", "/etc/mkinitcpio.conf.d"}},
}

// bootLoaders are the programs that make a boot loader's configuration. GRUB's come in the order of how much they know by themselves.
var bootLoaders = []bootTool{
	{program: "update-grub", files: grubSources},
	{program: "grub2-mkconfig", files: grubSources},
	{program: "grub-mkconfig", args: []string{"-o", "/boot/grub/grub.cfg"}, files: grubSources},
	{program: "kernelstub", files: []string{"/etc/kernelstub"}},
	{program: "kernel-install", files: []string{"/etc/kernel"}},
}

var grubSources = append([]string{"/etc/grub.d"}, grubFiles...)

// tool returns the program for the changed files. For those that are no program's own it is the first that the node has; for those that
// are, it has to be that one: another one does not read them.
func (b Boot) tool(tools []bootTool, files []string) (bootTool, bool, error) {
	var mine []bootTool
	owned := ""
	for _, t := range tools {
		i := slices.IndexFunc(files, func(f string) bool { return within(f, t.files...) })
		if i >= 0 {
			mine, owned = append(mine, t), files[i]
		}
	}
	if owned == "" {
		mine = tools
	}
	var names []string
	for _, t := range mine {
		if b.Root.Program(t.program) != "" {
			return t, true, nil
		}
		names = append(names, t.program)
	}
	if owned == "" {
		return bootTool{}, false, nil
	}
	return bootTool{}, false, fmt.Errorf("the node has no %s, which reads %s", strings.Join(names, " and no "), owned)
}

// CheckInitramfs returns an error if the node has nothing that makes an initramfs of the changed files.
func (b Boot) CheckInitramfs(files []string) error {
	_, _, err := b.tool(initramfsTools, files)
	return err
}

// CheckLoader returns an error if the node has nothing that makes the boot loader's configuration of the changed files.
func (b Boot) CheckLoader(files []string) error {
	_, ok, err := b.tool(bootLoaders, files)
	if err == nil && !ok {
		err = errors.New("the node has no program that makes a boot loader's configuration: update-grub, grub2-mkconfig, grub-mkconfig, kernelstub or kernel-install")
	}
	return err
}

// RebuildInitramfs makes the initramfs again. A node that has none needs none for files that others read, too, such as modprobe's.
func (b Boot) RebuildInitramfs(ctx context.Context, files []string) (string, error) {
	t, ok, err := b.tool(initramfsTools, files)
	if err != nil {
		return "", err
	}
	if !ok {
		return "the node makes no initramfs, so none was made again", nil
	}
	_, err = b.Root.RunTelling(ctx, host.Command{Name: t.program, Args: t.args})
	return "", err
}

// RebuildLoader makes the boot loader's configuration again, and looks whether it has what GRUB's settings name.
func (b Boot) RebuildLoader(ctx context.Context, files []string) error {
	t, _, err := b.tool(bootLoaders, files)
	if err = errors.Join(err, b.CheckLoader(files)); err != nil {
		return err
	}
	switch t.program {
	case "grub2-mkconfig":
		err = b.mkconfig2(ctx)
	case "kernel-install":
		err = b.kernelInstall(ctx)
	default:
		_, err = b.Root.RunTelling(ctx, host.Command{Name: t.program, Args: t.args})
	}
	if err != nil {
		return err
	}
	return b.inConfiguration(files)
}

// mkconfig2 runs Red Hat's and SUSE's program. Where kernels have entries of their own, a newer one changes these only when it is told to.
func (b Boot) mkconfig2(ctx context.Context) error {
	to := "/boot/grub2/grub.cfg"
	for _, p := range b.vendorConfigs() { // older UEFI systems have all of it there, newer ones a stub that leads to the other
		text, _, err := b.Root.ReadFile(p)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), "configfile") {
			to = p
		}
	}
	args := []string{"-o", to}
	if help, _ := b.Root.Run(ctx, host.Command{Name: "grub2-mkconfig", Args: []string{"--help"}}); strings.Contains(string(help), "--update-bls-cmdline") {
		args = append(args, "--update-bls-cmdline")
	}
	_, err := b.Root.RunTelling(ctx, host.Command{Name: "grub2-mkconfig", Args: args})
	return err
}

// vendorConfigs returns GRUB's configurations on the EFI system partition.
func (b Boot) vendorConfigs() []string {
	const dir = "/boot/efi/EFI"
	vendors, err := b.Root.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, v := range vendors {
		if p := path.Join(dir, v.Name(), "grub.cfg"); b.Root.Find(p) != "" {
			out = append(out, p)
		}
	}
	return out
}

// kernelInstall writes the entries of systemd-boot again, one for each kernel.
func (b Boot) kernelInstall(ctx context.Context) error {
	const dir = "/lib/modules"
	kernels, err := b.Root.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, k := range kernels {
		image := path.Join(dir, k.Name(), "vmlinuz")
		if b.Root.Find(image) == "" {
			image = "/boot/vmlinuz-" + k.Name()
		}
		if b.Root.Find(image) == "" {
			continue
		}
		found = true
		if _, err := b.Root.RunTelling(ctx, host.Command{Name: "kernel-install", Args: []string{"add", k.Name(), image}}); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("the node has no kernel in /lib/modules or /boot that kernel-install could make an entry for")
	}
	return nil
}

// inConfiguration returns an error if an argument that the changed files of GRUB or kernel-install name is in no entry: not every GRUB reads
// /etc/default/grub.d. Whether a later file takes it back again is not known, so it is asked of the last file only.
func (b Boot) inConfiguration(files []string) error {
	last := ""
	for _, file := range files {
		if within(file, argumentFiles...) && file > last {
			last = file
		}
	}
	if last == "" || b.overridden(last) {
		return nil
	}
	text, _, err := b.Root.ReadFile(last)
	if err != nil {
		return err
	}
	all, err := b.entries()
	if err != nil {
		return err
	}
	var absent []string
	for _, arg := range namedArguments(last, text) {
		if !slices.ContainsFunc(all, func(e entry) bool { return slices.Contains(e.args, arg) }) {
			absent = append(absent, arg)
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%s names %s, which is not in the configuration that was made of it: does this node's boot loader read that file?",
			last, strings.Join(argumentNames(absent), ", "))
	}
	return nil
}

// overridden reports whether another file of GRUB's settings is read after this one.
func (b Boot) overridden(file string) bool {
	if !within(file, grubFiles...) {
		return false
	}
	entries, _ := b.Root.ReadDir("/etc/default/grub.d") // without it there is none
	return slices.ContainsFunc(entries, func(info host.Info) bool {
		other := path.Join("/etc/default/grub.d", info.Name())
		return path.Ext(other) == ".cfg" && other > file
	})
}
