package effect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// moduleName returns a name as the kernel has it.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// modulesNamed returns the modules that all files name which are read when the node boots.
func (e Effects) modulesNamed() (map[string]string, error) {
	files, err := e.dropIns(moduleDirs)
	if err != nil {
		return nil, err
	}
	named := map[string]string{}
	for _, file := range files {
		text, _, err := e.Host.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, name := range lines(text) {
			named[moduleName(name)] = file
		}
	}
	return named, nil
}

// loaded reports whether the kernel has a module, by its own name or by another one.
func (e Effects) loaded(ctx context.Context, name string) bool {
	if e.has(name) {
		return true
	}
	out, err := e.Host.Run(ctx, host.Command{Name: "modprobe", Args: []string{"--show-depends", "--", name}})
	if err != nil {
		return false
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	kind, rest, _ := strings.Cut(strings.TrimSpace(all[len(all)-1]), " ") // the module itself comes after what it takes
	file, _, _ := strings.Cut(rest, " ")
	own, _, _ := strings.Cut(path.Base(file), ".ko")
	return kind == "builtin" || kind == "insmod" && e.has(moduleName(own))
}

func (e Effects) has(name string) bool {
	if _, err := e.Host.Stat("/sys/module/" + name); err == nil {
		return true
	}
	release, state, err := e.Host.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || !state.Exists {
		return false
	}
	builtin, _, err := e.Host.ReadFile("/lib/modules/" + string(bytes.TrimSpace(release)) + "/modules.builtin")
	return err == nil && slices.ContainsFunc(lines(builtin), func(line string) bool {
		return moduleName(strings.TrimSuffix(path.Base(line), ".ko")) == name
	})
}

func (e Effects) noteModules(ctx context.Context, changes []Change, n *Noted) {
	for _, c := range of(changes, moduleDirs...) {
		for _, name := range slices.Concat(lines(c.Before), lines(c.After)) {
			if n.Modules == nil {
				n.Modules = map[string]bool{}
			}
			n.Modules[moduleName(name)] = e.loaded(ctx, moduleName(name))
		}
	}
}

// bringModules tells which modules stay: to take one out of a running kernel would be to take it from whoever uses it.
func (e Effects) bringModules(ctx context.Context, n Noted, _ Base) ([]string, error) {
	named, err := e.modulesNamed()
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(n.Modules)) {
		if named[name] == "" && e.loaded(ctx, name) {
			notes = append(notes, fmt.Sprintf("no file names the module %s any more; it stays loaded until the node reboots", name))
		}
	}
	return notes, nil
}

func (e Effects) verifyModules(ctx context.Context, n Noted) error {
	named, err := e.modulesNamed()
	wrong := []error{err}
	for _, name := range slices.Sorted(maps.Keys(n.Modules)) {
		if file := named[name]; file != "" && !e.loaded(ctx, name) {
			wrong = append(wrong, fmt.Errorf("the module %s is not loaded, which %s names", name, file))
		}
	}
	return errors.Join(wrong...)
}

func (e Effects) undoModules(ctx context.Context, n Noted) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(n.Modules)) {
		if !n.Modules[name] && e.loaded(ctx, name) {
			notes = append(notes, fmt.Sprintf("the module %s was not loaded before, and stays so until the node reboots", name))
		}
	}
	return notes
}

// verifyParameters compares the parameters of modules that the kernel has with what the changed files say. Those that are neither numbers nor
// truth values are shown in forms of their own, and are not compared.
func (e Effects) verifyParameters(n Noted) error {
	var wrong []error
	for _, file := range n.Files {
		if !within(file, modprobeD) {
			continue
		}
		text, _, err := e.Host.ReadFile(file)
		if err != nil {
			return err
		}
		want := parameters(text)
		for _, p := range slices.Sorted(maps.Keys(want)) {
			now, state, err := e.Host.ReadFile("/sys/module/" + p)
			if err == nil && state.Exists && differs(words(string(now)), want[p]) {
				wrong = append(wrong, fmt.Errorf("/sys/module/%s is %q after the reboot, and %s says %q", p, words(string(now)), file, want[p]))
			}
		}
	}
	return errors.Join(wrong...)
}

// parameters returns what a file of modprobe's says, by the paths below /sys/module.
func parameters(text []byte) map[string]string {
	want := map[string]string{}
	for _, line := range lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "options" {
			continue
		}
		for _, option := range fields[2:] {
			if name, value, ok := strings.Cut(option, "="); ok {
				want[moduleName(fields[1])+"/parameters/"+name] = value
			}
		}
	}
	return want
}

// differs reports whether two values are surely not the same.
func differs(a, b string) bool {
	x, okX := truth(a)
	y, okY := truth(b)
	if okX && okY {
		return x != y
	}
	_, errA := strconv.ParseInt(a, 0, 64)
	_, errB := strconv.ParseInt(b, 0, 64)
	return errA == nil && errB == nil && !sameValue(a, b)
}

func truth(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "y", "1", "on":
		return true, true
	case "n", "0", "off":
		return false, true
	}
	return false, false
}

// bringRules tells what becomes of devices that are there.
func (e Effects) bringRules(_ context.Context, n Noted, _ Base) ([]string, error) {
	if !slices.ContainsFunc(n.Files, func(file string) bool { return within(file, udevRules) }) {
		return nil, nil
	}
	return []string{"udev's rules are for devices that come or change from now on; what is there stays as it is until udevadm trigger, or a reboot"}, nil
}
