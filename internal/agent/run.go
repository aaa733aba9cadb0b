package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// errInterrupted ends a run without a word about how it ended: it has not, and is taken up again.
var errInterrupted = errors.New("the run was interrupted; apply takes it up again at the first step that is not done")

// runner works on one run.
type runner struct {
	*Agent
	work     *work
	last     *lastRun
	progress progress
	// verified reports that a process before this one has verified the node.
	verified bool
	// waited reports that this process has waited for a boot to end.
	waited bool
}

// step is a part of a run that can be repeated. It returns a note for people, if there is something to note.
type step struct {
	name string
	do   func(ctx context.Context) (string, error)
}

// Run works on the run that Apply has begun, from the first step that is not done. If somebody else does already it waits
// for that one's end. Without a run under way it does nothing.
func (a *Agent) Run(ctx context.Context) (node.Status, error) {
	if err := a.state.create(); err != nil {
		return node.Status{}, err
	}
	release, err := a.state.lock(runLock)
	if err != nil {
		return node.Status{}, err
	}
	defer release()
	r := &runner{Agent: a}
	if r.last, err = a.state.loadStatus(); err != nil {
		return node.Status{}, err
	}
	if r.last == nil {
		return node.Status{State: node.Idle}, nil
	}
	if r.last.Status.State != node.Running {
		return r.last.Status, nil
	}
	if r.work, err = a.state.loadWork(); err != nil {
		return node.Status{}, err
	}
	if r.progress, err = a.state.progress(r.last.Offset); err != nil {
		return node.Status{}, err
	}
	r.verified = r.progress.done[stepVerify]
	r.markBegun()
	if err := r.sweep(); err != nil {
		return node.Status{}, err
	}
	return r.run(ctx)
}

func (r *runner) run(ctx context.Context) (node.Status, error) {
	if err := r.forward(ctx); errors.Is(err, errRebooting) {
		return r.detail(ctx, r.last.Status), nil
	} else if err != nil {
		return node.Status{}, err
	}
	end, owed := r.last.Status, (*debt)(nil)
	end.Step, end.Done = r.progress.last, r.forwardDone()
	if cause := r.progress.failed; cause == nil {
		end.State, end.Message = node.Succeeded, r.success()+r.saidAgain()
	} else {
		outcome, err := r.afterFailure(ctx)
		if errors.Is(err, errRebooting) {
			return r.detail(ctx, r.last.Status), nil
		}
		if err != nil {
			return node.Status{}, err
		}
		end.State, end.Step = node.Failed, cause.Step
		end.RolledBack, end.Message = outcome.complete, outcome.message
		end.NeedsReboot = outcome.needsReboot
		owed = cmp.Or(outcome.debt, r.last.Debt)
	}
	end.Notes, end.Steps = slices.Concat(end.Notes, r.progress.notes), timesOf(r.work, r.progress.times)
	left := r.left(end)
	if err := r.keepLeft(left); err != nil {
		end.Notes = append(end.Notes, "what this run has left can't be put back by the next one: "+err.Error())
	}
	r.last.Left = left
	r.endWorks(end)
	r.endActive(end)
	return end, r.finish(end, owed)
}

// forward does what is to be done until a step fails, now or before the run was taken up. An error says that the run was
// interrupted.
func (r *runner) forward(ctx context.Context) error {
	for _, s := range r.steps(r.work) {
		if r.progress.failed != nil {
			return nil
		}
		if r.progress.done[s.name] {
			continue
		}
		if !r.waitsItself() && r.awaitBoot(ctx) != nil {
			return errInterrupted
		}
		if err := r.stepForward(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// stepForward does a step as it is done when the run goes forward. An error says that the run was interrupted.
func (r *runner) stepForward(ctx context.Context, s step) (interrupted error) {
	switch {
	case s.name == stepReboot:
		return r.reboot(ctx, stepReboot)
	case s.name == stepConfirm:
		return r.confirm(ctx, stepConfirm)
	case s.name == stepRecord && r.verified:
		s = r.afterAnotherLook(s)
	}
	_, interrupted = r.step(ctx, s)
	return interrupted
}

// step does one step unless it is done. After a failure the run goes back; after an interruption nothing may be done.
func (r *runner) step(ctx context.Context, s step) (failure, interrupted error) {
	if r.progress.done[s.name] {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if err := r.boundary("before " + s.name); err != nil {
		return nil, err
	}
	var note string
	failure = r.noteStep(eventStarted, s.name, "")
	if failure == nil {
		if err := r.boundary("begun " + s.name); err != nil {
			return nil, err
		}
		failure = guard(func() (err error) { note, err = s.do(ctx); return err })
	}
	if failure != nil && r.endsHere(ctx, failure) {
		return nil, errInterrupted
	}
	if err := r.boundary("made " + s.name); err != nil {
		return nil, err
	}
	if failure == nil {
		failure = r.noteStep(eventDone, s.name, note)
	}
	if failure != nil {
		r.fail(s.name, failure)
	}
	return failure, r.boundary("ended " + s.name)
}

// afterAnotherLook has a step look first whether what an earlier process has verified is still there. That one may have gone back since, on
// a disk so full that it could not write down that it did. Whether units run is not looked at: after a loss of power they may be on their
// way up, and what was verified is not undone for that.
func (r *runner) afterAnotherLook(s step) step {
	return step{s.name, func(ctx context.Context) (string, error) {
		if err := errors.Join(r.verifyFiles(r.work), r.verifyOthers(ctx, r.work, kind.Active)); err != nil {
			return "", err
		}
		return s.do(ctx)
	}}
}

// noteStep writes down that a step begins or is done. A run that goes back does without, and so does one whose record is made: on a full
// disk files can be put back nevertheless, and what is recorded stays applied. Who takes such a run up does that part again, which does
// nothing twice, see afterAnotherLook.
func (r *runner) noteStep(event, name, note string) error {
	err := r.journal(event, name, note, nil)
	if err != nil && (r.progress.failed != nil || event == eventDone && name == stepRecord) {
		r.progress.add(node.JournalEntry{Event: event, Step: name, Note: note})
		return nil
	}
	return err
}

// fail notes a failure. That the journal can't be written, on a full disk, must not keep the files from being put back.
func (r *runner) fail(name string, err error) {
	failed := node.JournalEntry{Event: eventFailed, Step: name, Error: err.Error()}
	if r.journal(eventFailed, name, "", err) != nil {
		r.progress.add(failed)
	}
}

// journal writes an entry about a step or about the run as a whole.
func (r *runner) journal(event, name, note string, failure error) error {
	e := node.JournalEntry{Event: event, Step: name, Note: note}
	if failure != nil {
		e.Error = failure.Error()
	}
	return r.enter(e)
}

// enter writes an entry of this run and takes note of it.
func (r *runner) enter(e node.JournalEntry) error {
	e.Time, e.Token, e.Digest = r.cfg.Clock.Now(), r.work.Token, r.work.Digest
	_, err := r.state.appendJournal(e)
	if err != nil && r.state.spend() {
		_, err = r.state.appendJournal(e)
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	r.progress.add(e)
	return nil
}

// finish makes the end of the run known. Contents don't stay on the node longer than they are needed.
func (r *runner) finish(end node.Status, owed *debt) error {
	if !r.progress.finished {
		_ = r.journal(eventRunDone, "", "", nil) // status.json says it too, and a full disk is no reason to run again
	}
	if err := r.boundary("before the end"); err != nil {
		return err
	}
	release, err := r.state.lock(claimLock)
	if err != nil {
		return err
	}
	defer release()
	token, err := r.state.loadToken()
	if err != nil {
		return err
	}
	end.FinishedAt = r.cfg.Clock.Now()
	ended := *r.last
	ended.Fence, ended.Debt, ended.Status = token, owed, end
	if err := r.state.save("status.json", ended); err != nil {
		return err
	}
	if err := r.boundary("end known"); err != nil {
		return err
	}
	if err := r.disk.Remove(r.state.path("run.json")); err != nil {
		return err
	}
	if r.work.guarded() {
		_ = r.disarm(context.Background())
	}
	return r.state.pruneBackups()
}

// markBegun tells the changes that a process before this one has begun.
func (r *runner) markBegun() {
	for _, c := range r.work.Plan.Changes {
		if change, ok := r.work.Others[c.String()]; ok && r.progress.started[changeName(c)] {
			change.Again = true
			r.work.Others[c.String()] = change
		}
	}
}

// sweep removes what a run that died in the middle of a write has left. Nobody may be writing a token meanwhile.
func (r *runner) sweep() error {
	if len(r.progress.started) == 0 {
		return nil
	}
	release, err := r.state.lock(claimLock)
	if err != nil {
		return err
	}
	defer release()
	r.disk.Sweep(r.state.dir)
	r.disk.Sweep(r.state.path(r.state.originals().name))
	r.disk.Sweep(r.state.path(r.state.backups(r.work.Digest, r.work.Token).name))
	for _, c := range r.work.Plan.Changes {
		if c.Kind == node.FileKind {
			r.host().SweepBeside(c.Name)
		}
	}
	return nil
}

func (r *runner) forwardDone() int {
	n := 0
	for _, s := range r.steps(r.work) {
		if r.progress.done[s.name] {
			n++
		}
	}
	return n
}

func (r *runner) success() string {
	changes, actions := len(r.work.Plan.Changes), actionNames(r.work.Plan.Actions)
	switch {
	case changes == 0 && len(actions) > 0:
		return "nothing had to change, but the node had to read what is there: " + strings.Join(actions, ", ")
	case changes == 0:
		return "the node showed all that is desired; nothing had to change"
	case len(actions) == 0:
		return "changed " + things(r.work.Plan.Changes)
	}
	return fmt.Sprintf("changed %s, then: %s", things(r.work.Plan.Changes), strings.Join(actions, ", "))
}

// things returns how much was changed: all files together, what else there is by its name.
func things(changes []node.Change) string {
	files := 0
	var parts []string
	for _, c := range changes {
		if c.Kind == node.FileKind {
			files++
		} else {
			parts = append(parts, c.String())
		}
	}
	switch files {
	case 0:
	case 1:
		parts = append([]string{"1 file"}, parts...)
	default:
		parts = append([]string{fmt.Sprintf("%d files", files)}, parts...)
	}
	return strings.Join(parts, ", ")
}
