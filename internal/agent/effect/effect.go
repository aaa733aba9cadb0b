// Package effect looks at what the running system does with files that a run has changed: kernel parameters, modules, what systemd-tmpfiles
// makes, units that read their configuration once. A file that is as written says nothing of that, and to take one away undoes nothing.
package effect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// Change is a file that a run changes.
type Change struct {
	Path string
	// Before and After are what is in it. Nil: it is not there.
	Before, After []byte
	// Actions are those that the change takes.
	Actions []disruption.Action
}

// Noted is what was in effect before a run, of what the run's files name. It is written down before the first of them is changed.
type Noted struct {
	// Files are those that the package knows.
	Files []string `json:"files,omitempty"`
	// Sysctls are kernel parameters, by their paths below /proc/sys.
	Sysctls map[string]Sysctl `json:"sysctls,omitempty"`
	// Modules reports which modules of the kernel were there.
	Modules map[string]bool `json:"modules,omitempty"`
	// Made reports which of the paths were there that systemd-tmpfiles makes.
	Made map[string]bool `json:"made,omitempty"`
	// Written are the digests of what it writes to files that it makes.
	Written map[string][]string `json:"written,omitempty"`
	// Units are the invocations of units that read their files when they start.
	Units map[string]string `json:"units,omitempty"`
	// Arguments are the kernel's that files named before.
	Arguments []string `json:"arguments,omitempty"`
	// TrustFiles are those that name authorities, and Trusted the digests of the certificates that they held before.
	TrustFiles []string `json:"trustFiles,omitempty"`
	Trusted    []string `json:"trusted,omitempty"`
}

// Sysctl is a kernel parameter as it was before a run.
type Sysctl struct {
	// Value is nil if there was none that could be read.
	Value *string `json:"value,omitempty"`
	// Wanted is what the files said, nil if none named it.
	Wanted *string `json:"wanted,omitempty"`
}

// Base is what was there before refit's files first named it. It stays on the node, since a file can go long after it came.
type Base struct {
	// Sysctls are the values of kernel parameters that no file named.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Made are paths that were not there before systemd-tmpfiles made them.
	Made map[string]bool `json:"made,omitempty"`
}

// Effects looks at one node, and brings into effect what no unit does.
type Effects struct{ Host host.Host }

// The directories of the rows, and single files.
const (
	sysctlConf = "/etc/sysctl.conf"
	udevRules  = "/etc/udev/rules.d"
	modprobeD  = "/etc/modprobe.d"
	// kernelCmdline is what kernel-install puts into the entries that it writes.
	kernelCmdline = "/etc/kernel/cmdline"
)

var (
	sysctlDirs   = dropInDirs("sysctl.d")
	moduleDirs   = dropInDirs("modules-load.d")
	tmpfilesDirs = dropInDirs("tmpfiles.d")
	grubFiles    = []string{"/etc/default/grub", "/etc/default/grub.d"}
	// argumentFiles name arguments of the kernel.
	argumentFiles = append([]string{kernelCmdline}, grubFiles...)
)

// readers are units that read their files when they start, and the files.
var readers = map[string][]string{
	"systemd-journald.service": {"/etc/systemd/journald.conf", "/etc/systemd/journald.conf.d"},
	"systemd-resolved.service": {"/etc/systemd/resolved.conf", "/etc/systemd/resolved.conf.d"},
}

// Concerns reports whether a change is one that the package looks at. By a rule with None a change takes nothing: then nobody has asked for
// it to be in effect. What systemd-tmpfiles makes takes none of the actions.
func Concerns(path string, actions []disruption.Action) bool {
	if within(path, tmpfilesDirs...) {
		return true
	}
	if !slices.ContainsFunc(actions, func(a disruption.Action) bool { return a.Type != disruption.None && a.Type != disruption.Drain }) {
		return false
	}
	return within(path, slices.Concat(sysctlDirs, moduleDirs, argumentFiles, trustDirs, sshdFiles, slices.Concat(slices.Collect(maps.Values(readers))...),
		[]string{sysctlConf, udevRules, modprobeD})...)
}

// Note returns what is in effect of what changes name, and base with what they are the first to name. Without changes that concern the
// package it is empty.
func (e Effects) Note(ctx context.Context, changes []Change, base Base) (Noted, Base, error) {
	changes = slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return !Concerns(c.Path, c.Actions) })
	n := Noted{}
	base = Base{Sysctls: maps.Clone(base.Sysctls), Made: maps.Clone(base.Made)}
	for _, c := range changes {
		n.Files = append(n.Files, c.Path)
	}
	e.noteModules(ctx, changes, &n)
	err := errors.Join(
		e.noteSysctls(changes, &n, &base), e.noteMade(changes, &n, &base), e.noteReaders(ctx, changes, &n),
	)
	e.noteTrust(changes, &n)
	for _, c := range of(changes, argumentFiles...) {
		n.Arguments = append(n.Arguments, namedArguments(c.Path, c.Before)...)
	}
	return n, base, err
}

// Bring does what no unit does, once files are written and units have read them: what they no longer name gets back what it was before
// refit, as far as that is known. The notes tell what takes a reboot.
func (e Effects) Bring(ctx context.Context, n Noted, base Base) ([]string, error) {
	var notes []string
	for _, bring := range []func(context.Context, Noted, Base) ([]string, error){e.bringSysctls, e.bringModules, e.bringMade, e.bringRules} {
		more, err := bring(ctx, n, base)
		notes = append(notes, more...)
		if err != nil {
			return notes, err
		}
	}
	return notes, nil
}

// Verify returns an error if the running system does not have what the files say that were changed. booted reports that it was booted
// with them.
func (e Effects) Verify(ctx context.Context, n Noted, booted bool) ([]string, error) {
	notes, err := e.verifySysctls(n)
	trust, untrusted := e.verifyTrust(n)
	notes = slices.Concat(notes, trust, e.overridden(ctx, n))
	err = errors.Join(err, e.verifyModules(ctx, n), e.verifyMade(n), untrusted)
	if booted {
		return notes, errors.Join(err, e.verifyParameters(n))
	}
	return notes, errors.Join(err, e.verifyReaders(ctx, n))
}

// Undo gives the running system what it had before a run whose files are put back and read again.
func (e Effects) Undo(ctx context.Context, n Noted) ([]string, error) {
	sysctls := e.undoSysctls(n)
	made, unmade := e.undoMade(ctx, n)
	return slices.Concat(e.undoModules(ctx, n), made), errors.Join(sysctls, unmade)
}

// of returns the changes of some files, and of those below some directories.
func of(changes []Change, paths ...string) []Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return !within(c.Path, paths...) })
}

func within(p string, paths ...string) bool {
	return slices.ContainsFunc(paths, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}
