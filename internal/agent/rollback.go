package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// stepVerifyBack is the last step of a rollback that has acted on units.
const stepVerifyBack = "verify again"

// outcome is how a rollback ended.
type outcome struct {
	complete bool
	message  string
	// debt is what the node has to do yet, or nil.
	debt *debt
	// needsReboot reports that the next run has the node reboot, to read what was written.
	needsReboot bool
}

// rollBack puts back every file of which the change was begun, and repeats the actions that were: a service that has read
// the new files must read the old ones again. It goes on past failures, so that as much as possible is put back, and what could
// not be is owed: the next plan may find every file as it is desired, and the service down. An error says that the run was
// interrupted.
//
// A reboot is not repeated: a node whose verification fails after one must not be rebooted on and on, and what made it fail
// may be gone with the next. The files are put back all the same: whatever boots the node next, it boots with what it ran with
// before, and a retry finds all of its work still to be done. Until then no run can say that the node shows what is desired,
// so the next one, which a person or new specs ask for, has the node reboot whatever else it does. Where the reboot has closed the way
// in, nobody could ask for one: there the node reboots once more, with what was put back.
func (r *runner) rollBack(ctx context.Context) (outcome, error) {
	cause := *r.progress.failed
	changes, actions := r.begun()
	var failures []string
	for _, s := range r.stepsBack(changes, actions) {
		failure, interrupted := r.step(ctx, s)
		if interrupted != nil {
			return outcome{}, interrupted
		}
		if failure != nil {
			failures = append(failures, fmt.Sprintf("%s failed: %v", s.name, failure))
		}
	}
	if len(failures) == 0 {
		if err := r.forgetOriginals(); err != nil {
			failures = append(failures, err.Error())
		}
	}
	changes = append(changes, r.leftChanges()...)
	if len(changes)+len(actions) > 0 { // what could not be put back may be with the next boot, and locked out nobody can see to it
		failure, interrupted := r.worksAgain(ctx)
		if interrupted != nil {
			return outcome{}, interrupted
		}
		if failure != nil {
			failures = append(failures, fmt.Sprintf("%s failed: %v", stepWorksBack, failure))
		}
	}
	message := r.failureMessage(cause, changes, actions, failures)
	if len(failures) > 0 {
		return outcome{message: message, debt: r.notBackDebt(changes, actions)}, nil
	}
	return r.allBack(message), nil
}

// notBackDebt is that of a node that could not be put back: whichever files are there, what reads them may not have read them. Where
// nothing was begun, or nothing is to be done on the node, there is none beside that of before.
func (r *runner) notBackDebt(changes []node.Change, actions []disruption.Action) *debt {
	if len(changes)+len(actions) == 0 || len(onNode(r.work.Plan.Actions)) == 0 {
		return nil
	}
	boot, _ := bootOf(r.root) // without it the actions are owed until they are done
	return &debt{
		Boot: boot, Actions: r.work.Plan.Actions,
		Why: "an earlier run could not put the node back as it was, so what it had to do on the node is done again",
	}
}

// allBack returns how a rollback has ended that has put everything back.
func (r *runner) allBack(message string) outcome {
	if r.progress.rolledBack {
		return outcome{complete: true, message: message}
	}
	if len(r.work.Plan.Changes)+len(r.leftBack()) > 0 && r.booted() {
		boot, _ := bootOf(r.root)
		return outcome{message: message + ", " + rebootOnceMore, debt: rolledBackDebt(boot)}
	}
	if r.last.Debt != nil && (len(r.leftBack()) == 0 || !r.progress.done[stepRebootBack]) {
		return outcome{message: message}
	}
	_ = r.journal(eventRolledBack, "", "", nil) // as with the end of a run
	return outcome{complete: true, message: message}
}

// booted reports whether the node was booted since the run has begun to reboot it, and runs with what the run has written.
func (r *runner) booted() bool {
	begun := r.progress.boots[stepReboot]
	if begun == "" || r.progress.done[stepRebootBack] {
		return false
	}
	boot, err := bootOf(r.root)
	return err != nil || boot != begun
}

// worksAgain sees whether the node works as it did before the run, before anybody is told that it is put back. It has the node reboot with
// what was put back, once, if nobody comes in any more, and either the node was booted with what was changed and runs with it until then, or
// it does not work as before: what was put back has not undone what the change has done, as with routes that are gone with a setting of the
// kernel's.
func (r *runner) worksAgain(ctx context.Context) (failure, interrupted error) {
	if r.progress.boots[stepRebootBack] == "" { // else that was decided before
		needed, failure, interrupted := r.needsBoot(ctx)
		if !needed || interrupted != nil {
			return failure, interrupted
		}
	}
	var stays error
	for _, s := range r.stepsLeftBack() { // it may have come out just now that nobody comes in
		failure, interrupted := r.step(ctx, s)
		if interrupted != nil {
			return nil, interrupted
		}
		stays = errors.Join(stays, failure)
	}
	if err := r.rebootBack(ctx); err != nil {
		return nil, err
	}
	if failure, interrupted = r.step(ctx, r.worksBack()); interrupted != nil {
		return nil, interrupted
	}
	return errors.Join(stays, failure), nil
}

// needsBoot reports whether the node has to reboot with what was put back. If not, a failure is what does not work, and stays so.
func (r *runner) needsBoot(ctx context.Context) (needed bool, failure, interrupted error) {
	if !r.booted() {
		if failure, interrupted = r.step(ctx, r.worksBack()); failure == nil || interrupted != nil {
			return false, nil, interrupted
		}
	}
	away, interrupted := r.away(ctx)
	return away && !r.bootedBack(), failure, interrupted
}

// bootedBack reports whether the node was booted by somebody else while it waited for the last login: with what was put back.
func (r *runner) bootedBack() bool {
	if r.progress.awaited == nil || r.progress.awaited.Step != stepConfirmBack {
		return false
	}
	boot, err := bootOf(r.root)
	return err == nil && boot != r.progress.awaited.Boot
}

// away reports whether nobody comes in to a node that was put back. Of one that was booted with what was changed, nobody has come in since
// that boot, or the way can have been closed after that, whatever the run failed for.
func (r *runner) away(ctx context.Context) (bool, error) {
	switch {
	case !r.work.guarded(), r.cfg.Units == nil: // without systemd nothing reboots
		return false, nil
	case !r.booted():
		err := r.confirm(ctx, stepConfirmBack)
		return r.progress.missed(stepConfirmBack), err
	}
	return r.nobodyComesIn(ctx)
}

// worksBack looks whether the node works as it did before the run, once what was put back has been read. One that was rebooted for that
// has to come up.
func (r *runner) worksBack() step {
	return step{stepWorksBack, func(ctx context.Context) (note string, err error) {
		if !r.progress.done[stepRebootBack] {
			err = r.awaitBoot(ctx)
		} else if note, err = r.awaitUp(ctx); err == nil {
			err = r.verifyUnits(ctx, r.haveWorked(unitActions(r.work)), host.UnitState.CheckBooted)
		}
		if err != nil {
			return "", err
		}
		return note, r.awaitWorks(ctx, r.work)
	}}
}

// begun returns what has to be undone, last change first.
func (r *runner) begun() (changes []node.Change, actions []disruption.Action) {
	for _, c := range slices.Backward(r.work.Plan.Changes) {
		if r.progress.started[changeName(c)] {
			changes = append(changes, c)
		}
	}
	for _, a := range r.work.Plan.Actions {
		if a.Type != disruption.Reboot && r.progress.started[actionName(a)] {
			actions = append(actions, a)
		}
	}
	return changes, actions
}

func (r *runner) stepsBack(changes []node.Change, actions []disruption.Action) []step {
	backups := r.state.backups(r.work.Digest, r.work.Token)
	var steps []step
	if r.progress.started[stepRecord] { // it may say already that what is put back now was applied
		steps = append(steps, step{"put back the record", func(context.Context) (string, error) { return "", backups.putBackRecord() }})
	}
	for _, c := range changes {
		steps = append(steps, step{"put back " + c.String(), func(ctx context.Context) (string, error) {
			if c.Kind == node.FileKind {
				return "", backups.putBack(r.host(), c.Name)
			}
			return r.undo(ctx, r.work, c)
		}})
	}
	steps = append(steps, r.stepsLeftBack()...)
	for _, a := range actions {
		steps = append(steps, step{actionName(a) + " again", func(ctx context.Context) (string, error) {
			note, err := r.again(ctx, a)
			return r.forgive(ctx, a, note, err)
		}})
	}
	steps = append(steps, r.effectsBack(changes)...)
	if len(changes)+len(actions) > 0 {
		steps = append(steps, r.startBack()...)
	}
	if len(actions) > 0 {
		steps = append(steps, step{stepVerifyBack, func(ctx context.Context) (string, error) {
			if err := r.awaitBoot(ctx); err != nil {
				return "", err
			}
			return "", r.verifyUnits(ctx, r.haveWorked(actions), r.unitCheck())
		}})
	}
	return steps
}

// forgetOriginals removes the copies that the run has kept for a record that it did not come to.
func (r *runner) forgetOriginals() error {
	rec, err := r.state.loadRecord()
	if err != nil {
		return err
	}
	return r.state.sweepOriginals(rec)
}

// failureMessage returns what happened, why, and how the node is left.
func (r *runner) failureMessage(cause node.JournalEntry, changes []node.Change, actions []disruption.Action, failures []string) string {
	message := fmt.Sprintf("%s failed: %s; ", cause.Step, cause.Error)
	if r.progress.unconfirmed() && cause.Step != stepConfirm {
		message += "then refit could not log in any more; "
	}
	switch {
	case len(failures) > 0:
		return message + "the node could not be put back as it was: " + strings.Join(failures, "; ") +
			"; look at it before anything else is done to it" + r.saidAgain()
	case len(changes) == 0:
		return message + r.leftBehind()
	}
	what := "the files were"
	if slices.ContainsFunc(changes, func(c node.Change) bool { return c.Kind != node.FileKind }) {
		what = "what was changed was"
	}
	message += what + " put back"
	for i, a := range actions {
		if i == len(actions)-1 {
			message += " and "
		} else {
			message += ", "
		}
		message += past(a)
	}
	if r.progress.done[stepRebootBack] {
		message += ", and the node was rebooted with that"
	}
	return message + r.saidAgain()
}

// past returns an action as it is told when it is done.
func past(a disruption.Action) string {
	switch a.Type {
	case disruption.Reload:
		return a.Unit + " reloaded"
	case disruption.Restart:
		return a.Unit + " restarted"
	case disruption.TrustStoreUpdate:
		return "the trust store updated"
	case disruption.StaticPodRefresh:
		return "the static pods replaced"
	case disruption.NetworkReload:
		return "the network reloaded"
	case disruption.RebuildInitramfs:
		return "the initramfs rebuilt"
	case disruption.RebuildBootloader:
		return "the boot loader's configuration rebuilt"
	default:
		return "systemd's configuration reloaded"
	}
}
