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

// bootLook is how often it is looked whether a boot has ended.
const bootLook = time.Second

// rebootPatience is how long a reboot that was asked for is waited for while systemd does not shut down yet: programs may
// delay it, and the kubelet does so while pods end. After that it counts as lost, and is asked for again.
const rebootPatience = 10 * time.Minute

// startTimeField is where in /proc/PID/stat, after the name, the time is at which the process began, in ticks since the boot.
const startTimeField = 19

// errRebooting ends the process that has asked for a reboot. The run is taken up again after it.
var errRebooting = errors.New("the node was asked to reboot; apply takes the run up again when it is back")

// stepReboot is the name of the step that reboots the node.
const stepReboot = "reboot"

// reboots says whether a merged list of actions has the node reboot.
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

// reboot does the step that reboots the node. The journal tells which boot it was begun in. In another one it is done; in the
// same one it is asked for, again if need be, since however often a boot is ended it ends once. This process does not see
// the end of the step, unless it is the one that comes after the boot. An error says that the run was interrupted, be it by
// the reboot itself.
func (r *runner) reboot(ctx context.Context) error {
	if r.progress.done[stepReboot] {
		return nil
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := r.boundary("before " + stepReboot); err != nil {
		return err
	}
	boot, err := bootOf(r.root)
	if err != nil {
		return r.endReboot(err)
	}
	if r.progress.boot != "" && r.progress.boot != boot {
		return r.endReboot(r.enter(node.JournalEntry{Event: eventDone, Step: stepReboot, Boot: boot}))
	}
	asked := r.progress.askedAt != nil
	failure, interrupted := r.askFrom(ctx, boot)
	switch {
	case interrupted != nil:
		return interrupted
	case failure == nil || asked: // what was agreed to before may still come, and nothing may be put back meanwhile
		return errRebooting
	case ctx.Err() != nil:
		return errInterrupted
	}
	return r.endReboot(failure)
}

// endReboot ends the step, with a failure if there is one.
func (r *runner) endReboot(failure error) error {
	if failure != nil {
		r.fail(stepReboot, failure)
	}
	return r.boundary("ended " + stepReboot)
}

// askFrom asks for the end of a boot, and notes before and after that it does.
func (r *runner) askFrom(ctx context.Context, boot string) (failure, interrupted error) {
	if err := r.enter(node.JournalEntry{Event: eventStarted, Step: stepReboot, Boot: boot}); err != nil {
		return err, nil
	}
	if err := r.boundary("begun " + stepReboot); err != nil {
		return nil, err
	}
	if err := guard(func() error { return r.askForReboot(ctx, r.work) }); err != nil {
		return err, nil
	}
	if err := r.boundary("made " + stepReboot); err != nil {
		return nil, err
	}
	// That it can't be noted changes nothing: the node goes down.
	_ = r.enter(node.JournalEntry{Event: eventAsked, Step: stepReboot, Boot: boot})
	return nil, r.boundary("asked " + stepReboot)
}

// askForReboot has systemd reboot the node in good order, unless it is shutting down already.
func (a *Agent) askForReboot(ctx context.Context, w *work) error {
	if down, err := a.stopping(ctx); down || err != nil {
		return err
	}
	for _, action := range unitActions(w) { // the SSH server starts anew too, and it is the way in
		unit, _, err := a.loaded(ctx, action.Unit)
		if err == nil {
			err = a.testSSH(ctx, unit)
		}
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	err := a.cfg.Units.Do(limited, "reboot", "")
	if err == nil {
		return nil
	}
	if down, _ := a.stopping(ctx); down { // so far that systemd does not answer properly any more
		return nil
	}
	return fmt.Errorf("systemctl reboot: %w (see systemd-inhibit --list and journalctl -b on the node)", err)
}

// stopping says whether systemd shuts the node down.
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

// rebooting says whether the node is about to leave the boot in which the run has asked for its end.
func (a *Agent) rebooting(ctx context.Context, p progress) (bool, error) {
	if p.boot == "" || p.done[stepReboot] || p.failed != nil {
		return false, nil
	}
	boot, err := bootOf(a.root)
	if err != nil || boot != p.boot {
		return false, err
	}
	if p.askedAt != nil && a.cfg.Clock.Now().Sub(*p.askedAt) < rebootPatience {
		return true, nil
	}
	return a.stopping(ctx)
}

// awaitUp waits until systemd has started all that a boot starts, and returns a note if not all of it is well.
func (a *Agent) awaitUp(ctx context.Context) (note string, err error) {
	state := ""
	for waited := time.Duration(0); waited < bootPatience; waited += bootLook {
		if state, err = a.systemState(ctx); err != nil {
			return "", err
		}
		switch state {
		case "initializing", "starting", systemStopping: // when it goes down, this process does so too
		case "degraded":
			return "not all units came up after the reboot (see systemctl --failed on the node)", nil
		default:
			return "", nil
		}
		if err := a.cfg.Clock.Wait(ctx, bootLook); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("the node is still %s %s after the reboot (see systemctl list-jobs on the node)", state, bootPatience)
}

// unitActions returns the actions on units that a run takes, also those that a reboot makes needless.
func unitActions(w *work) []disruption.Action {
	var all []disruption.Action
	for _, c := range w.Plan.Changes {
		all = append(all, c.Actions...)
	}
	return disruption.Merge(slices.DeleteFunc(all, func(a disruption.Action) bool { return a.Unit == "" }))
}

// rebootOnceMore says how a node is left whose files were put back after it was booted with others.
const rebootOnceMore = "but the node was booted with the new ones and runs with them until it is rebooted, " +
	"which refit does not do by itself"
