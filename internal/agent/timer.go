package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// The units that watch over a run. systemd keeps them over a boot.
const (
	resumeService = "refit-resume.service"
	resumeTimer   = "refit-resume.timer"
	// resumeProgram is the agent's own program, as it was when the run began: another one may be brought meanwhile.
	resumeProgram = "refit-resume"
)

// resumeWanted have systemd start the timer with the node, be it that a file system is missing or that somebody boots it for maintenance:
// what a run has changed can be the cause.
var resumeWanted = []string{
	"timers.target.wants/" + resumeTimer, "emergency.target.wants/" + resumeTimer, "rescue.target.wants/" + resumeTimer,
}

// longest is how long one process may work on a run, as systemd writes it. One that hangs holds the lock of the run, so that nobody else goes
// on with it. systemd ends it then, and the watch, or the next apply, goes on where it was. No step takes as long, and a run that does goes on
// as after any other interruption.
const longest = "6h"

// execStart is what the program's path comes after in the text of the service.
const execStart = "ExecStart="

// timer is a timer of systemd's.
type timer struct {
	cfg  Config
	disk host.Disk
}

func (t timer) unit(name string) string {
	return filepath.Join(t.cfg.Root, "/etc/systemd/system", name)
}

// program is beside the agent's, since files can be run there.
func (t timer) program() string { return filepath.Join(filepath.Dir(t.cfg.Executable), resumeProgram) }

// programs are those that can be there. The agent that has armed may have been in another directory.
func (t timer) programs() []string {
	programs := []string{t.program()}
	text, _ := t.disk.ReadFile(t.unit(resumeService)) // one that can't be read is not refit's
	for line := range strings.Lines(string(text)) {
		if quoted, ok := strings.CutPrefix(line, execStart); ok {
			other := filepath.Clean(firstQuoted(quoted))
			if filepath.IsAbs(other) && filepath.Base(other) == resumeProgram && other != t.program() {
				programs = append(programs, other)
			}
		}
	}
	return programs
}

// Arm implements Watch.
func (t timer) Arm(ctx context.Context) error {
	programs := t.programs()
	err := t.install()
	for _, do := range [][2]string{{"daemon-reload"}, {"restart", resumeTimer}} {
		if err == nil {
			err = t.do(ctx, do[0], do[1])
		}
	}
	for _, old := range programs[1:] {
		if err == nil {
			err = t.disk.Remove(old)
		}
	}
	if err != nil {
		return fmt.Errorf("nothing would put the node back if refit could not come in any more: %w", err)
	}
	return nil
}

// Armed implements Watch.
func (t timer) Armed() bool {
	_, err := t.disk.Lstat(t.unit(resumeTimer))
	return err == nil
}

// install writes all files. That the timer starts with the node is not left to systemctl, which does not see that it survives a loss of power.
func (t timer) install() error {
	mine, err := t.disk.Open(t.cfg.Executable)
	if err != nil {
		return err
	}
	defer mine.Close()
	if err := t.disk.Write(t.program(), mine, host.State{UID: host.KeepOwner, GID: host.KeepOwner, Mode: 0o755}); err != nil {
		return err
	}
	if err := labelProgram(t.cfg.Root, t.program()); err != nil {
		return err
	}
	for name, text := range t.units() {
		if err := t.disk.Write(t.unit(name), strings.NewReader(text), host.State{UID: host.KeepOwner, GID: host.KeepOwner, Mode: 0o644}); err != nil {
			return err
		}
	}
	for _, wanted := range resumeWanted {
		if err := t.disk.Mkdirs(filepath.Dir(t.unit(wanted)), 0o755); err != nil {
			return err
		}
		if err := t.disk.Link("../"+resumeTimer, t.unit(wanted)); err != nil {
			return err
		}
	}
	return nil
}

// Disarm implements Watch. It can be called from the service itself, which is not stopped. A timer that can't be stopped stays as it is, and
// has this called again.
func (t timer) Disarm(ctx context.Context) error {
	var paths []string
	for _, wanted := range resumeWanted {
		paths = append(paths, t.unit(wanted))
	}
	paths = append(paths, t.programs()...)
	paths = append(paths, t.unit(resumeTimer), t.unit(resumeService)) // the last names the programs
	if !t.anyOf(paths) {
		return nil
	}
	if err := t.do(ctx, "stop", resumeTimer); err != nil && !t.stopped(ctx) {
		return err
	}
	var err error
	for _, path := range paths {
		err = errors.Join(err, t.disk.Remove(path))
	}
	err = errors.Join(err, t.do(ctx, "daemon-reload", ""))
	// One that was to start when its program went has failed, and the node would count as degraded. Of most there is nothing to forget.
	_ = t.do(ctx, "reset-failed", resumeService)
	return err
}

func (t timer) anyOf(paths []string) bool {
	for _, path := range paths {
		if _, err := t.disk.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// stopped reports whether systemd does not run the timer, be it that it has never heard of it.
func (t timer) stopped(ctx context.Context) bool {
	state, err := t.cfg.Units.Show(ctx, resumeTimer)
	return err == nil && !state.Running()
}

func (t timer) do(ctx context.Context, verb, unit string) error {
	if err := t.cfg.Units.Do(ctx, verb, unit); err != nil {
		return fmt.Errorf("systemctl %s: %w", strings.TrimSpace(verb+" "+unit), err)
	}
	return nil
}

// units returns the text of both. The service is simple, since a boot would not count as ended while a start of it is under way, and the
// agent waits for that end. However often it was started of late, it is started again. One that hangs is ended after longest.
//
// Neither needs what a boot comes up with, which does not where a file system is missing: systemd is in emergency mode then, and starts nothing
// that waits for sysinit.target. The service comes after the file systems that are mounted, and has the root file system be writable. A failed
// local-fs.target is as good to After= as one that is reached, or that nobody wants.
func (t timer) units() map[string]string {
	const about = "Description=Puts this node back if refit can't log in any more\n"
	const alone = "StartLimitIntervalSec=0\nDefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n"
	return map[string]string{
		resumeService: "[Unit]\n" + about + alone + "Wants=systemd-remount-fs.service\nAfter=systemd-remount-fs.service local-fs.target\n" +
			"[Service]\nType=simple\nOOMScoreAdjust=-900\nTimeoutStartSec=1min\nTimeoutStopSec=10s\nRuntimeMaxSec=" + longest + "\n" +
			execStart + quote(t.program()) + " --root " + quote(t.cfg.Root) + " " + verbResume + "\n",
		resumeTimer: "[Unit]\n" + about + alone +
			"[Timer]\nOnActiveSec=15s\nOnUnitInactiveSec=15s\nAccuracySec=1s\n" +
			"[Install]\nWantedBy=timers.target emergency.target rescue.target\n",
	}
}

// quote returns a word as systemd reads it.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(text) + `"`
}

// firstQuoted returns the word that a text begins with, as quote has written it, or "".
func firstQuoted(text string) string {
	rest, ok := strings.CutPrefix(text, `"`)
	if !ok {
		return ""
	}
	var word strings.Builder
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '"':
			return word.String()
		case '\\', '%': // the one after it is meant
			if i++; i == len(rest) {
				return ""
			}
		}
		word.WriteByte(rest[i])
	}
	return ""
}
