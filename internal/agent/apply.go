package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

// How often a run under way is looked at, and how often nobody must be seen working on it until it counts as interrupted:
// a process that was just started takes a while to come up.
const (
	firstLook    = 5 * time.Millisecond
	longestLook  = 200 * time.Millisecond
	launchChecks = 20
)

// admission is what Apply does once the token is claimed.
type admission struct {
	next verdict
	// digest is that of the run to launch.
	digest string
	// busy is reported once that is launched.
	busy error
}

type verdict int

const (
	answer verdict = iota // with the status at hand, or the one at the end of a run that somebody works on
	launch                // whoever works on the run
	inline                // work on the run here and now, since it changes no file
)

// Apply has what is desired applied, and waits for the end as long as the request says. It can be called again at any time
// with the same request: a run under way is adopted, one that was interrupted is taken up where it stopped, and one that
// has ended is not repeated. A failed one is, when a higher token asks for it.
func (a *Agent) Apply(ctx context.Context, req node.Request) (node.Status, error) {
	want, err := a.validate(req)
	if err != nil {
		return node.Status{}, err
	}
	if req.Token == 0 {
		return node.Status{}, invalidf("apply takes a token")
	}
	if err := a.state.create(); err != nil {
		return node.Status{}, err
	}
	if req.NoteFor != "" {
		return a.noteFor(ctx, req)
	}
	adm, err := a.admit(ctx, req, want)
	if err != nil {
		return node.Status{}, err
	}
	if err := a.carryOut(ctx, adm, req.Token); err != nil {
		return node.Status{}, err
	}
	status, err := a.await(ctx, req.Digest, time.Duration(req.WaitSeconds)*time.Second)
	if adm.next == launch && req.WaitSeconds == 0 && status.Interrupted {
		status.Interrupted, status.Message = false, "" // what was launched just now is on its way
	}
	return status, err
}

func (a *Agent) carryOut(ctx context.Context, adm admission, token int64) (err error) {
	switch adm.next {
	case launch:
		err = a.cfg.Launcher.Launch(ctx, unitName(adm.digest, token), verbRun)
	case inline:
		_, err = a.Run(ctx)
	case answer:
	}
	if err == nil {
		err = adm.busy
	}
	return err
}

// admit claims the token and decides what to do, while nobody else on the node can.
func (a *Agent) admit(ctx context.Context, req node.Request, want desired) (admission, error) {
	release, err := a.state.lock(claimLock)
	if err != nil {
		return admission{}, err
	}
	defer release()
	if err := a.checkMachine(req.Machine); err != nil {
		return admission{}, err
	}
	fresh, err := a.claim(req)
	if err != nil {
		return admission{}, err
	}
	last, err := a.state.loadStatus()
	if err != nil {
		return admission{}, err
	}
	if last != nil && last.Status.State == node.Running {
		return a.join(ctx, *last, req, fresh)
	}
	return a.follow(ctx, last, req, want, fresh)
}

// follow decides what to do after a run that has ended, if there was one. A token that is new here is a new attempt even when it is
// lower than that of the last run: somebody has removed the higher ones, which came from an etcd that was set back.
func (a *Agent) follow(ctx context.Context, last *lastRun, req node.Request, want desired, fresh bool) (admission, error) {
	// A process that died at the very end has left the contents of its run.
	if err := a.disk.Remove(a.state.path("run.json")); err != nil {
		return admission{}, err
	}
	if last == nil || last.Status.Digest != req.Digest {
		return a.start(ctx, req, want, false)
	}
	if req.UnderWay || last.Status.State == node.Failed && !fresh && req.Token <= last.Fence {
		return admission{next: answer}, nil
	}
	return a.start(ctx, req, want, last.Status.State == node.Succeeded)
}

// start begins a run, unless there is nothing to do after one that has succeeded.
func (a *Agent) start(ctx context.Context, req node.Request, want desired, succeeded bool) (admission, error) {
	p, err := a.plan(ctx, req, want)
	if err == nil {
		p.work.Updaters, err = a.pendingUpdaters()
	}
	if err != nil {
		return admission{}, err
	}
	if len(p.work.Plan.Blocked) > 0 {
		return admission{}, blocked(p.work.Plan.Blocked)
	}
	if missing := p.work.Plan.Stage; len(missing) > 0 {
		return admission{}, reasonf(node.ReasonBlocked, "nothing was changed: %s must be brought to the node first", strings.Join(missing, ", "))
	}
	if succeeded && p.settled() && p.work.Updaters == nil {
		return admission{next: answer}, nil
	}
	if err := permitted(req, p.work.Plan); err != nil {
		return admission{}, err
	}
	next := launch
	if p.work.isEmpty() {
		next = inline
	}
	p.work.WayIn, p.work.Acts = a.wayIn(&p.work), acts(&p.work)
	return admission{next: next, digest: req.Digest}, a.begin(p.work, p.owed)
}

// permitted returns an error if a run would take what nobody has decided on: the node was changed since it was asked for its plan.
func permitted(req node.Request, plan node.Plan) error {
	if req.Quiet && plan.Disturbs() {
		return reasonf(node.ReasonChanged, "nothing was begun: the node was changed since it was asked what the update takes, "+
			"which disturbs it by now; it is asked again")
	}
	if req.Permitted == nil {
		return nil
	}
	for _, action := range plan.Actions {
		if !slices.Contains(req.Permitted, action) {
			return reasonf(node.ReasonChanged, "nothing was begun: the node was changed since it was asked what the update takes, which is %s by now, too; it is asked again",
				action)
		}
	}
	return nil
}

// claim refuses a token lower than the highest and stores a higher one. It reports whether the token is new.
func (a *Agent) claim(req node.Request) (bool, error) {
	highest, err := a.state.loadToken()
	switch {
	case err != nil:
		return false, err
	case req.Token < highest:
		return false, reasonf(node.ReasonStale, "token %d was claimed on this node; %d is stale", highest, req.Token)
	case req.Token == highest:
		return false, nil
	}
	if err := a.state.saveToken(req.Token); err != nil {
		return false, err
	}
	return true, a.note(req, eventClaimed)
}

// join goes along with a run under way. If nobody works on it any more it is taken up, whatever it is for: a half-made
// change is never left for a new one to be made upon. While the node goes down for it, nothing is started any more.
func (a *Agent) join(ctx context.Context, last lastRun, req node.Request, fresh bool) (admission, error) {
	run := last.Status
	alive, err := a.state.locked(runLock)
	if err != nil {
		return admission{}, err
	}
	p, err := a.state.progress(last.Offset)
	if err != nil {
		return admission{}, err
	}
	down, err := a.rebooting(ctx, p)
	if err != nil {
		return admission{}, err
	}
	adm := admission{next: answer, digest: run.Digest}
	if !alive && !down {
		adm.next = launch
	}
	if run.Digest != req.Digest {
		adm.busy = reasonf(node.ReasonBusy, "a run for digest %s is under way at step %q; wait for its end",
			run.Digest, p.last)
		return adm, nil
	}
	if fresh || adm.next == launch {
		err = a.note(req, eventAdopted)
	}
	return adm, err
}

// begin writes down all that a run needs. Only with the last write does the run exist.
func (a *Agent) begin(w work, owed *debt) error {
	if err := a.state.rotateJournal(); err != nil {
		return err
	}
	now := a.cfg.Clock.Now()
	started := node.JournalEntry{Time: now, Token: w.Token, Digest: w.Digest, Event: eventRunStarted}
	offset, err := a.state.appendJournal(started)
	if err != nil {
		return err
	}
	if err := a.state.save("run.json", w); err != nil {
		return err
	}
	if err := a.boundary("work written"); err != nil {
		return err
	}
	boot, _ := bootOf(a.root) // where it can't be told, nothing reboots
	return a.state.save("status.json", lastRun{Machine: w.Machine, Boot: boot, Offset: offset, Debt: owed, Left: w.Left, Guarded: w.guarded(), Status: node.Status{
		State: node.Running, Digest: w.Digest, Token: w.Token, Total: len(a.steps(&w)), StartedAt: now,
		Changes: w.Plan.Changes, Actions: w.Plan.Actions, Notes: w.Plan.Notes,
	}})
}

func (a *Agent) note(req node.Request, event string) error {
	_, err := a.state.appendJournal(node.JournalEntry{
		Time: a.cfg.Clock.Now(), Token: req.Token, Digest: req.Digest, Event: event,
	})
	return err
}

func blocked(problems []node.Problem) error {
	reasons := make([]string, 0, len(problems))
	for _, p := range problems {
		reasons = append(reasons, p.Reason)
	}
	return reasonf(node.ReasonBlocked, "nothing was changed: %s", strings.Join(reasons, "; "))
}
