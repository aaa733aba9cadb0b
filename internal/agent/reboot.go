package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// The states of the whole system that systemd has names for.
const (
	systemStopping = "stopping"
)

// rebootPatience is how long a reboot that was asked for is waited for while systemd does not shut down yet: programs may
// delay it, and the kubelet does so while pods end. After that it counts as lost, and is asked for again. A clock that somebody sets does not
// count, only how long the node has been up.
const rebootPatience = 10 * time.Minute

// rebootRetry is the pause before a reboot is asked for again that systemd has refused, and that the way in depends on.
const rebootRetry = 15 * time.Second

// startTimeField is where in /proc/PID/stat, after the name, the time is at which the process began, in ticks since the boot.
const startTimeField = 19

// errRebooting ends the process that has asked for a reboot. The run is taken up again after it.
var errRebooting = errors.New("the node was asked to reboot; apply takes the run up again when it is back")

// errNotYet says that a reboot was refused which has to come.
var errNotYet = errors.New("the node does not reboot yet")

// The names of the steps that reboot the node: with what was changed, and, where that has closed the way in, once more with what was put back.
const (
	stepReboot     = "reboot"
	stepRebootBack = "reboot again"
)

// reboots reports whether a merged list of actions has the node reboot.
func reboots(actions []disruption.Action) bool {
	return disruption.Has(actions, disruption.Reboot)
}

// boot returns what tells one boot of the node from another: the kernel's id of the boot, and when its first process began,
// because the kernel of a node that is a container is booted with the host only.
func bootOf(r host.Root) (string, error) {
	id, err := readProc(r, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	stat, err := readProc(r, "/proc/1/stat")
	if err != nil {
		return "", err
	}
	// The name, in parentheses, may have anything in it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if id = bytes.TrimSpace(id); len(id) == 0 || len(fields) <= startTimeField {
		return "", errors.New("one boot of the node can't be told from another: /proc does not show it")
	}
	return string(id) + "/" + string(fields[startTimeField]), nil
}

func readProc(r host.Root, p string) ([]byte, error) {
	data, state, err := r.ReadFile(p)
	if err == nil && !state.Exists {
		err = fmt.Errorf("%s is missing", p)
	}
	if err != nil {
		return nil, fmt.Errorf("one boot of the node can't be told from another: %w", err)
	}
	return data, nil
}

// reboot does a step that reboots the node. The journal tells which boot it was begun in. In another one it is done; in the
// same one it is asked for, again if need be, since however often a boot is ended it ends once. This process does not see
// the end of the step, unless it is the one that comes after the boot. An error says that the run was interrupted, be it by
// the reboot itself.
func (r *runner) reboot(ctx context.Context, name string) error {
	if r.progress.done[name] {
		return nil
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := r.boundary("before " + name); err != nil {
		return err
	}
	boot, err := bootOf(r.root)
	if err != nil {
		return r.endReboot(name, err)
	}
	if begun := r.progress.boots[name]; begun != "" && begun != boot {
		return r.endReboot(name, r.noteBooted(name, boot))
	}
	_, asked := r.progress.askedUntil[name]
	failure, interrupted := r.askFrom(ctx, name, boot)
	switch {
	case interrupted != nil:
		return interrupted
	case failure == nil || asked: // what was agreed to before may still come, and nothing may be put back meanwhile
		return errRebooting
	case ctx.Err() != nil:
		return errInterrupted
	}
	return r.endReboot(name, failure)
}

// endReboot ends the step, with a failure if there is one. With what was put back the node has to reboot in the end: there it has not ended.
func (r *runner) endReboot(name string, failure error) error {
	if failure != nil && (name != stepRebootBack || r.progress.errors[name] != failure.Error()) {
		r.fail(name, failure)
	}
	if err := r.boundary("ended " + name); err != nil {
		return err
	}
	if failure != nil && name == stepRebootBack {
		return errNotYet
	}
	return nil
}

// noteBooted notes that the node was booted. One that was booted with what was put back needs no note for that: that it was begun in
// another boot tells it, too.
func (r *runner) noteBooted(name, boot string) error {
	done := node.JournalEntry{Event: eventDone, Step: name, Boot: boot}
	err := r.enter(done)
	if err != nil && name == stepRebootBack {
		r.progress.add(done)
		return nil
	}
	return err
}

// rebootBack has the node reboot with what was put back. refit can't come in to ask for it once more, so it is asked for until systemd
// agrees. It is never done without a note of the boot in which it was begun: the node would boot on and on.
func (r *runner) rebootBack(ctx context.Context) error {
	for {
		err := r.reboot(ctx, stepRebootBack)
		if !errors.Is(err, errNotYet) {
			return err
		}
		if r.cfg.Clock.Wait(ctx, rebootRetry) != nil {
			return errInterrupted
		}
		if !r.booted() && r.worksNow(ctx, r.work) { // it was what could not be seen that was away
			return nil
		}
	}
}

// askFrom asks for the end of a boot, and notes before and after that it does.
func (r *runner) askFrom(ctx context.Context, name, boot string) (failure, interrupted error) {
	if r.progress.boots[name] != boot {
		if err := r.enter(node.JournalEntry{Event: eventStarted, Step: name, Boot: boot}); err != nil {
			return err, nil
		}
	}
	if err := r.boundary("begun " + name); err != nil {
		return nil, err
	}
	if err := guard(func() error { return r.askForReboot(ctx, name) }); err != nil {
		return err, nil
	}
	if err := r.boundary("made " + name); err != nil {
		return nil, err
	}
	// That it can't be noted changes nothing: the node goes down.
	asked := node.JournalEntry{Event: eventAsked, Step: name, Boot: boot}
	if _, up, err := uptimeOf(r.root); err == nil {
		asked.Until = up + rebootPatience
	}
	_ = r.enter(asked)
	return nil, r.boundary("asked " + name)
}

// askForReboot has systemd reboot the node in good order, unless it is shutting down already.
func (r *runner) askForReboot(ctx context.Context, name string) error {
	if down, err := r.stopping(ctx); down || err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, r.cfg.ActionTimeout)
	defer cancel()
	if name != stepRebootBack { // by which the way in can't get worse
		if err := r.testSSHUnits(limited); err != nil {
			return err
		}
	}
	r.noteReport(limited)
	err := r.cfg.Units.Do(limited, "reboot", "")
	if err == nil {
		return nil
	}
	if down, _ := r.stopping(ctx); down { // so far that systemd does not answer properly any more
		return nil
	}
	return fmt.Errorf("systemctl reboot: %w (see systemd-inhibit --list and journalctl -b on the node)", err)
}

// testSSHUnits tests the configuration of an SSH server that the run is about. It starts again too, and it is the way in.
func (r *runner) testSSHUnits(ctx context.Context) error {
	for _, action := range unitActions(r.work) {
		unit, _, err := r.loaded(ctx, action.Unit)
		if err == nil {
			err = r.testSSH(ctx, unit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stopping reports whether systemd shuts the node down.
func (a *Agent) stopping(ctx context.Context) (bool, error) {
	state, err := a.systemState(ctx)
	return state == systemStopping, err
}

func (a *Agent) systemState(ctx context.Context) (string, error) {
	if a.cfg.Units == nil {
		return "", errors.New("the node has no systemctl in /usr/bin or /bin, which tells whether it is shutting down")
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	state, err := a.cfg.Units.System(ctx)
	if err != nil {
		return "", fmt.Errorf("systemctl is-system-running: %w", err)
	}
	return state, nil
}

// rebooting reports whether the node is about to leave the boot in which the run has asked for its end.
func (a *Agent) rebooting(ctx context.Context, p progress) (bool, error) {
	name := stepReboot
	if p.failed != nil {
		name = stepRebootBack
	}
	if p.boots[name] == "" || p.done[name] {
		return false, nil
	}
	boot, up, err := uptimeOf(a.root)
	if err != nil || boot != p.boots[name] {
		return false, err
	}
	if up < p.askedUntil[name] {
		return true, nil
	}
	return a.stopping(ctx)
}

// unitActions returns the actions on units that a run takes, also those that a reboot makes needless.
func unitActions(w *work) []disruption.Action { return changedUnits(w.Plan) }

func changedUnits(plan node.Plan) []disruption.Action {
	var all []disruption.Action
	for _, c := range plan.Changes {
		all = append(all, c.Actions...)
	}
	return disruption.Merge(slices.DeleteFunc(all, func(a disruption.Action) bool { return a.Unit == "" }))
}

// rebootOnceMore says how a node is left whose files were put back after it was booted with others.
const rebootOnceMore = "but the node was booted with the new ones and runs with them until it is rebooted, " +
	"which refit does not do by itself"
