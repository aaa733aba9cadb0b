package effect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// namedArguments returns the kernel's arguments that a file of GRUB's settings or of kernel-install names.
func namedArguments(file string, text []byte) []string {
	if file == kernelCmdline {
		return slices.DeleteFunc(strings.Fields(string(text)), func(word string) bool { return strings.ContainsAny(word, "$\\\"'") })
	}
	return grubArguments(text)
}

// grubArguments returns the kernel's arguments that a file of GRUB's settings names. What a shell has to work out is left out.
func grubArguments(text []byte) []string {
	var out []string
	for _, line := range lines(text) {
		line, _ = strings.CutPrefix(line, "export ")
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSuffix(name, "+")
		if !ok || name != "GRUB_CMDLINE_LINUX" && name != "GRUB_CMDLINE_LINUX_DEFAULT" {
			continue
		}
		for _, word := range strings.Fields(strings.Trim(value, `"'`)) {
			if !strings.ContainsAny(word, "$`\\\"'") {
				out = append(out, word)
			}
		}
	}
	return out
}

// entry is what a boot loader hands to a kernel.
type entry struct {
	kernel string
	args   []string
	// open reports that some arguments are the boot loader's variables, whose values are not known here.
	open bool
}

// grubConfigs are where GRUB's configuration is, and entryDirs where the Boot Loader Specification has its entries.
var (
	grubConfigs = []string{"/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"}
	entryDirs   = []string{"/boot/loader/entries", "/boot/efi/loader/entries", "/efi/loader/entries"}
)

// entries returns those of the boot loader's configuration that are no rescue.
func (b Boot) entries() ([]entry, error) {
	var out []entry
	variable, err := b.kernelOptions()
	if err != nil {
		return nil, err
	}
	for _, file := range append(slices.Clone(grubConfigs), b.vendorConfigs()...) {
		text, _, err := b.Root.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, line := range lines(text) {
			fields := strings.Fields(line)
			if len(fields) > 1 && slices.Contains([]string{"linux", "linux16", "linuxefi"}, fields[0]) {
				out = append(out, newEntry(fields[1], fields[2:], variable))
			}
		}
	}
	for _, dir := range entryDirs {
		found, err := b.entriesIn(dir, variable)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return slices.DeleteFunc(out, func(e entry) bool {
		return slices.Contains(e.args, "single") || slices.Contains(e.args, "recovery")
	}), nil
}

// entriesIn returns those of a directory of the Boot Loader Specification.
func (b Boot) entriesIn(dir string, variable []string) ([]entry, error) {
	found, err := b.Root.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, info := range found {
		if path.Ext(info.Name()) != ".conf" {
			continue
		}
		text, _, err := b.Root.ReadFile(path.Join(dir, info.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, blsEntry(text, variable))
	}
	return out, nil
}

// kernelOptions returns the arguments that older Red Hat systems have in a variable of GRUB's.
func (b Boot) kernelOptions() ([]string, error) {
	text, _, err := b.Root.ReadFile("/boot/grub2/grubenv")
	for _, line := range lines(text) {
		if options, ok := strings.CutPrefix(line, "kernelopts="); ok {
			return strings.Fields(options), nil
		}
	}
	return nil, err
}

func blsEntry(text []byte, variable []string) entry {
	kernel, args := "", []string{}
	for _, line := range lines(text) {
		switch fields := strings.Fields(line); fields[0] {
		case "linux", "efi", "uki":
			kernel = fields[len(fields)-1]
		case "options":
			args = append(args, fields[1:]...)
		}
	}
	return newEntry(kernel, args, variable)
}

func newEntry(kernel string, args, variable []string) entry {
	e := entry{kernel: path.Base(kernel)}
	for _, arg := range args {
		if arg == "$kernelopts" && len(variable) > 0 {
			e.args = append(e.args, variable...)
			continue
		}
		if strings.ContainsAny(arg, "$\\\"'") {
			e.open = true
			continue
		}
		e.args = append(e.args, arg)
	}
	return e
}

// Booted returns an error if the running kernel has not got the arguments that the boot loader's configuration says. before are arguments
// that files named and that may have gone. Only the names of arguments are told.
func (b Boot) Booted(before []string) error {
	has, image, err := b.running()
	if err != nil {
		return err
	}
	all, err := b.entries()
	if err != nil {
		return err
	}
	if mine := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.kernel != image }); len(mine) > 0 {
		all = mine
	}
	if len(all) == 0 {
		return errors.New("the boot loader's configuration has no entry, so the kernel's arguments can't be compared with it")
	}
	closest, least := "", -1
	for _, e := range all {
		missing, surplus := e.compare(has, before)
		n := len(missing) + len(surplus)
		if n == 0 {
			return nil
		}
		if least < 0 || n < least {
			closest, least = told(missing, surplus), n
		}
	}
	return fmt.Errorf("the kernel was not booted as the boot loader's configuration says: in /proc/cmdline %s (see cat /proc/cmdline on the node)", closest)
}

// running returns the arguments of the running kernel, and the name of its file as far as the boot loader has told it.
func (b Boot) running() (args []string, image string, err error) {
	data, state, err := b.Root.ReadFile("/proc/cmdline")
	if err == nil && !state.Exists {
		err = errors.New("/proc/cmdline is missing")
	}
	if err != nil {
		return nil, "", err
	}
	for _, arg := range strings.Fields(string(data)) {
		if name, ok := strings.CutPrefix(arg, "BOOT_IMAGE="); ok {
			image = path.Base(name)
		} else {
			args = append(args, arg)
		}
	}
	return args, image, nil
}

// compare returns what a kernel lacks of an entry's arguments, and what it has beyond them.
func (e entry) compare(has, before []string) (missing, surplus []string) {
	missing = slices.DeleteFunc(slices.Clone(e.args), func(arg string) bool { return slices.Contains(has, arg) })
	surplus = slices.DeleteFunc(slices.Clone(has), func(arg string) bool {
		return slices.Contains(e.args, arg) || e.open && !slices.Contains(before, arg)
	})
	return missing, surplus
}

func told(missing, surplus []string) string {
	var parts []string
	for _, p := range []struct {
		what string
		args []string
	}{{"is missing", missing}, {"is still", surplus}} {
		if len(p.args) > 0 {
			parts = append(parts, p.what+" "+strings.Join(argumentNames(p.args), ", "))
		}
	}
	return strings.Join(parts, ", and ")
}

func argumentNames(args []string) []string {
	var names []string
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		names = append(names, name)
	}
	return names
}
