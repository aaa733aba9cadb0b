package effect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const procSys = "/proc/sys/"

// readSysctl returns the value of a kernel parameter. Some can't be read, and some are not there until a module is.
func (e Effects) readSysctl(key string) (string, bool) {
	data, state, err := e.Host.ReadFile(procSys + key)
	if err != nil || !state.Exists {
		return "", false
	}
	return words(string(data)), true
}

func (e Effects) writeSysctl(key, value string) error {
	dir, err := e.Host.OpenDir(procSys + path.Dir(key))
	if err != nil {
		return err
	}
	if dir == nil {
		return fmt.Errorf("%s is missing", procSys+path.Dir(key))
	}
	defer func() { _ = dir.Close() }()
	f, err := dir.OpenFile(path.Base(key), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if now, ok := e.readSysctl(key); ok && !sameValue(now, value) {
		return fmt.Errorf("the kernel took %q for %q", value, now)
	}
	return nil
}

// sameValue reports whether the kernel shows a value that was written: numbers can be written in several ways.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseInt(a, 0, 64)
	y, errY := strconv.ParseInt(b, 0, 64)
	return errX == nil && errY == nil && x == y
}

// dotted returns a key as people write it.
func dotted(key string) string {
	if strings.Contains(key, ".") {
		return key
	}
	return strings.ReplaceAll(key, "/", ".")
}

func (e Effects) noteSysctls(changes []Change, n *Noted, base *Base) error {
	winners, err := e.sysctls()
	if err != nil {
		return err
	}
	maps.DeleteFunc(base.Sysctls, func(key, _ string) bool { _, named := winners[key]; return !named })
	for _, c := range of(changes, append(slices.Clone(sysctlDirs), sysctlConf)...) {
		for _, a := range slices.Concat(parseSysctls(c.Before), parseSysctls(c.After)) {
			for _, key := range e.expand(a.key) {
				e.noteSysctl(key, winners, n, base)
			}
		}
	}
	return nil
}

func (e Effects) noteSysctl(key string, winners map[string]assignment, n *Noted, base *Base) {
	was := Sysctl{}
	winner, named := winners[key]
	if named {
		was.Wanted = &winner.value
	}
	value, ok := e.readSysctl(key)
	if ok {
		was.Value = &value
	}
	if ok && !named {
		if base.Sysctls == nil {
			base.Sysctls = map[string]string{}
		}
		base.Sysctls[key] = value
	}
	if n.Sysctls == nil {
		n.Sysctls = map[string]Sysctl{}
	}
	n.Sysctls[key] = was
}

// bringSysctls writes back what a parameter was before refit's files named it, where no other file does.
func (e Effects) bringSysctls(_ context.Context, n Noted, base Base) ([]string, error) {
	winners, err := e.sysctls()
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, key := range slices.Sorted(maps.Keys(n.Sysctls)) {
		_, named := winners[key]
		now, ok := e.readSysctl(key)
		if named || n.Sysctls[key].Wanted == nil || !ok {
			continue
		}
		before, known := base.Sysctls[key]
		switch {
		case !known:
			notes = append(notes, fmt.Sprintf("no file names %s any more, and what it was before one did is not known: it stays at %q, and has the kernel's own value after a reboot", dotted(key), now))
		case sameValue(now, before):
		default:
			if err := e.writeSysctl(key, before); err != nil {
				notes = append(notes, fmt.Sprintf("no file names %s any more, and it can't be set back to %q (%v): it takes a reboot", dotted(key), before, err))
			}
		}
	}
	return notes, nil
}

// verifySysctls compares what the changed files name with what the kernel has. What was not in effect before, and is wanted as before, is
// not held against the run.
func (e Effects) verifySysctls(n Noted) ([]string, error) {
	winners, err := e.sysctls()
	if err != nil {
		return nil, err
	}
	var notes []string
	var wrong []error
	for _, key := range e.namedNow(n) {
		want, named := winners[key]
		if !named || want.optional {
			continue
		}
		if err := e.verifySysctl(key, want); err != nil {
			if n.Sysctls[key].inVain(want.value) {
				notes = append(notes, fmt.Sprintf("%v; it was not so before either", err))
			} else {
				wrong = append(wrong, err)
			}
		}
	}
	if slices.Contains(n.Files, sysctlConf) && !e.readsSysctlConf() {
		wrong = append(wrong, fmt.Errorf("%s is not read by systemd-sysctl on this node: no link in /etc/sysctl.d leads to it; use a file in /etc/sysctl.d", sysctlConf))
	}
	return append(notes, e.outdone(n, winners)...), errors.Join(wrong...)
}

// inVain reports whether files wanted a value before, and it was not in effect.
func (s Sysctl) inVain(value string) bool {
	return s.Wanted != nil && *s.Wanted == value && (s.Value == nil || !sameValue(*s.Value, value))
}

// outdone tells what the changed files say in vain, since another file counts.
func (e Effects) outdone(n Noted, winners map[string]assignment) []string {
	var notes []string
	for _, file := range n.Files {
		if !within(file, sysctlDirs...) {
			continue
		}
		text, _, _ := e.Host.ReadFile(file) // which were read just now
		for _, a := range parseSysctls(text) {
			if winner, ok := winners[a.key]; ok && winner.file != file && !sameValue(winner.value, a.value) {
				notes = append(notes, fmt.Sprintf("%s has no say in %s: %s counts, which says %q", file, dotted(a.key), winner.file, winner.value))
			}
		}
	}
	return notes
}

// namedNow returns what was noted, and what a pattern of the changed files stands for by now.
func (e Effects) namedNow(n Noted) []string {
	keys := map[string]Sysctl{}
	maps.Copy(keys, n.Sysctls)
	for _, file := range n.Files {
		if !within(file, sysctlDirs...) {
			continue
		}
		text, _, _ := e.Host.ReadFile(file) // which were read just now
		for _, a := range parseSysctls(text) {
			for _, key := range e.expand(a.key) {
				if _, ok := keys[key]; !ok {
					keys[key] = Sysctl{}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (e Effects) verifySysctl(key string, want assignment) error {
	now, ok := e.readSysctl(key)
	if ok && !sameValue(now, want.value) {
		return fmt.Errorf("%s is %q in the kernel, and %s says %q", dotted(key), now, want.file, want.value)
	}
	if _, err := e.Host.Stat(procSys + key); err != nil {
		return fmt.Errorf("the kernel has no %s, which %s sets: is a module missing?", dotted(key), want.file)
	}
	return nil
}

// readsSysctlConf reports whether a link among the drop-ins leads to /etc/sysctl.conf.
func (e Effects) readsSysctlConf() bool {
	files, err := e.dropIns(sysctlDirs)
	conf, missing := e.Host.Resolve(sysctlConf)
	return err == nil && missing == nil && slices.ContainsFunc(files, func(f string) bool { at, err := e.Host.Resolve(f); return err == nil && at == conf })
}

func (e Effects) undoSysctls(n Noted) error {
	var failed []error
	for _, key := range slices.Sorted(maps.Keys(n.Sysctls)) {
		was := n.Sysctls[key].Value
		now, ok := e.readSysctl(key)
		if was == nil || !ok || sameValue(now, *was) {
			continue
		}
		if err := e.writeSysctl(key, *was); err != nil {
			failed = append(failed, fmt.Errorf("%s can't be set back to %q, which takes a reboot: %w", dotted(key), *was, err))
		}
	}
	return errors.Join(failed...)
}
