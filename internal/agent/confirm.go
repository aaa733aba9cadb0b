package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// The names of the steps of a run that may close the way in: before all others, when all is verified, when the run has failed and the node
// is about to be left, and when all was put back and the node does not work as before.
const (
	stepArm         = "arm the way back"
	stepConfirm     = "confirm the way in"
	stepConfirmLeft = "confirm the way in again"
	stepConfirmBack = "confirm that the way in is back"
)

// confirmLook is how often a run that waits for a login looks whether it has come.
const confirmLook = time.Second

// awaits reports whether the run waits for a login.
func (p progress) awaits() bool {
	return p.awaited != nil && !p.done[p.awaited.Step] && !p.missed(p.awaited.Step)
}

// missed reports whether the login did not come that a step has waited for.
func (p progress) missed(step string) bool { return p.errors[step] != "" }

// unconfirmed reports whether no login has come since what the run has changed was there.
func (p progress) unconfirmed() bool { return p.missed(stepConfirm) || p.missed(stepConfirmLeft) }

// awaitsLogin reports whether the run waits for a login, of which whoever waits for the run's end has to be told.
func (a *Agent) awaitsLogin(last lastRun) bool {
	if !last.Guarded {
		return false
	}
	p, err := a.state.progress(last.Offset)
	return err == nil && p.awaits()
}

// confirm does a step that waits for a login: until somebody has written down that it came, or until the time is over. The deadline is
// written down, too, so that each process that works on the run has the same. An error says that the run was interrupted.
func (r *runner) confirm(ctx context.Context, name string) error {
	if r.progress.done[name] || r.progress.missed(name) {
		return nil
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := r.boundary("before " + name); err != nil {
		return err
	}
	if r.progress.awaited == nil || r.progress.awaited.Step != name {
		if err := r.beginWait(name); err != nil {
			r.fail(name, err)
			return r.boundary("ended " + name)
		}
	}
	if err := r.boundary("begun " + name); err != nil {
		return err
	}
	for !r.answered() {
		if r.cfg.Clock.Wait(ctx, confirmLook) != nil {
			return errInterrupted
		}
	}
	return r.boundary("ended " + name)
}

// beginWait writes down until when a login is awaited. A clock that somebody sets does not count, only how long the node has been up.
func (r *runner) beginWait(name string) error {
	boot, up, err := uptimeOf(r.root)
	if err != nil {
		return err
	}
	within := cmp.Or(r.work.Rules.ConfirmWithin, disruption.DefaultConfirmWithin)
	otherwise := "puts everything back"
	if name == stepConfirmBack || name == stepConfirmLeft && r.booted() {
		otherwise = "reboots with what was put back"
	}
	what := r.work.WayIn + " was changed, which is on the way by which refit comes in"
	if r.work.WayIn == "" {
		what = "the node was acted on (" + r.work.Acts + "), which can close the way by which refit comes in"
	}
	return r.enter(node.JournalEntry{
		Event: eventAwaited, Step: name, Boot: boot, Until: up + within,
		Note: fmt.Sprintf("%s: the node awaits a login of refit's until %s, and %s if none comes",
			what, r.cfg.Clock.Now().Add(within).UTC().Format(time.RFC3339), otherwise),
	})
}

// answered reports whether the wait is over, be it that the login has come or that it came too late. Who confirms holds the same lock, so
// that it is either the one or the other.
func (r *runner) answered() bool {
	name := r.progress.awaited.Step
	release, err := r.state.lock(claimLock)
	if err != nil {
		r.fail(name, err)
		return true
	}
	defer release()
	p, err := r.state.progress(r.last.Offset)
	if err == nil && p.done[name] {
		r.progress.done[name], r.progress.times = true, p.times // who has logged in has written that down
		return true
	}
	if err == nil {
		err = r.missed(*r.progress.awaited)
	}
	if err == nil {
		return false
	}
	r.fail(name, err)
	return true
}

// missed returns an error when a login would come too late.
func (a *Agent) missed(awaited node.JournalEntry) error {
	boot, up, err := uptimeOf(a.root)
	switch {
	case err != nil:
		return err
	case boot != awaited.Boot:
		return errors.New("the node was booted again while it waited for refit to log in")
	case up >= awaited.Until:
		return errors.New("refit could not log in to the node any more")
	}
	return nil
}

// confirmLogin notes that somebody has come in by a login that was made for it.
func (a *Agent) confirmLogin(req node.StatusRequest) error {
	release, err := a.state.lock(claimLock)
	if err != nil {
		return err
	}
	defer release()
	last, err := a.state.loadStatus()
	if err != nil {
		return err
	}
	if last == nil || !last.Guarded || !last.isFor(req) {
		return reasonf(node.ReasonNotAwaited, "no run with token %d for digest %s waits for a login", req.Token, req.Digest)
	}
	p, err := a.state.progress(last.Offset)
	switch {
	case err != nil:
		return err
	case p.awaited != nil && p.done[p.awaited.Step]: // the answer was lost
		return nil
	case !p.awaits():
		return reasonf(node.ReasonNotAwaited, "the run with token %d does not wait for a login", req.Token)
	}
	if err := a.missed(*p.awaited); err != nil {
		return reasonf(node.ReasonNotAwaited, "the login comes too late: %v", err)
	}
	_, err = a.state.appendJournal(node.JournalEntry{
		Time: a.cfg.Clock.Now(), Token: req.Token, Digest: req.Digest, Event: eventDone, Step: p.awaited.Step,
	})
	return err
}

// isFor reports whether a login is confirmed for this run.
func (l lastRun) isFor(req node.StatusRequest) bool {
	return req.Token != 0 && l.Status.Token == req.Token && l.Status.Digest == req.Digest
}

// lost reports whether a run that has failed, and is to be left as it is, has closed the way in. Who is to look at the node must get there.
// That somebody has come in before it failed says nothing: what it failed for may have closed the way since.
func (r *runner) lost(ctx context.Context) (bool, error) {
	if changes, actions := r.begun(); !r.work.guarded() || len(changes)+len(actions) == 0 {
		return false, nil
	}
	return r.nobodyComesIn(ctx)
}

// nobodyComesIn reports whether the login that was awaited has not come, or none comes now.
func (r *runner) nobodyComesIn(ctx context.Context) (bool, error) {
	if r.progress.unconfirmed() {
		return true, nil
	}
	err := r.confirm(ctx, stepConfirmLeft)
	return r.progress.unconfirmed(), err
}

// uptimeOf returns the boot of the node, and how long ago it was. Time in which the node was suspended counts. A directory that stands for a
// node may have no /proc: there that of the machine counts.
func uptimeOf(r host.Root) (boot string, up time.Duration, err error) {
	if _, missing := r.Lstat("/proc"); errors.Is(missing, fs.ErrNotExist) {
		r = host.Root{Dir: "/"}
	}
	if boot, err = bootOf(r); err != nil {
		return "", 0, err
	}
	data, err := readProc(r, "/proc/uptime")
	if err != nil {
		return "", 0, err
	}
	text, _, _ := bytes.Cut(data, []byte(" "))
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
	if err != nil {
		return "", 0, errors.New("/proc/uptime does not tell how long the node has been up")
	}
	return boot, time.Duration(seconds * float64(time.Second)), nil
}
