package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// stepUpdaters is the step of a run that asks whether the node still works after what registered updaters have done to it. It comes before
	// refit's own part: what fails there is not refit's, and nothing of refit's has to be put back for it.
	stepUpdaters = "see that the node works after other updaters"
	// unitsStillRun is the probe of the units that were active before registered updaters began.
	unitsStillRun = "what systemd ran"
)

// beforeUpdaters is what of the node worked before registered updaters began their part on it. It outlives servers, connections and boots, and
// is forgotten when a run has begun after which refit's own part counts.
type beforeUpdaters struct {
	// Names are those of the UpdaterRegistrations, in the order in which they are called.
	Names []string `json:"names"`
	// Digest is that of the specs that they are called for.
	Digest string `json:"digest"`
	// Boot is the boot of the node then, if that can be told.
	Boot string `json:"boot,omitempty"`
	// Before is what worked, by the keys of the probes, and Units are the units that were active, and stay so until somebody stops them.
	Before []string `json:"before"`
	Units  []string `json:"units,omitempty"`
}

// noteFor notes what of the node works before a registered updater is called, and does nothing else. Asked again for the same specs it adds the
// updater only: the one before may have changed the node since. What was noted for other specs is owed: their updaters may have broken it.
func (a *Agent) noteFor(ctx context.Context, req node.Request) (node.Status, error) {
	release, err := a.state.lock(claimLock)
	if err != nil {
		return node.Status{}, err
	}
	defer release()
	if err := a.mayNote(req); err != nil {
		return node.Status{}, err
	}
	var known works
	if _, err := a.state.load(worksFile, &known); err != nil {
		return node.Status{}, err
	}
	if u := known.Updaters; u == nil || u.Digest != req.Digest {
		if known.Updaters, err = a.lookForUpdaters(ctx, req); err != nil {
			return node.Status{}, err
		}
		if u != nil {
			known.Owed = union(known.Owed, u.Before)
		}
	}
	if !slices.Contains(known.Updaters.Names, req.NoteFor) {
		known.Updaters.Names = append(known.Updaters.Names, req.NoteFor)
		if err := a.state.save(worksFile, known); err != nil {
			return node.Status{}, err
		}
		if _, err := a.state.appendJournal(node.JournalEntry{
			Time: a.cfg.Clock.Now(), Token: req.Token, Digest: req.Digest, Event: eventNoted,
			Note: "what works on the node was noted before UpdaterRegistration " + req.NoteFor + " is called",
		}); err != nil {
			return node.Status{}, err
		}
	}
	return node.Status{State: node.Idle, Digest: req.Digest}, nil
}

// mayNote returns an error unless the request is of the server whose turn it is, and nothing runs on the node.
func (a *Agent) mayNote(req node.Request) error {
	if err := a.checkMachine(req.Machine); err != nil {
		return err
	}
	if _, err := a.claim(req); err != nil {
		return err
	}
	last, err := a.state.loadStatus()
	if err == nil && last != nil && last.Status.State == node.Running {
		err = reasonf(node.ReasonBusy, "a run for digest %s is under way; wait for its end", last.Status.Digest)
	}
	return err
}

// lookForUpdaters returns what works. What an updater is going to do nobody knows, so that all is asked.
func (a *Agent) lookForUpdaters(ctx context.Context, req node.Request) (*beforeUpdaters, error) {
	all := slices.Concat(a.probes(false), []probe.Probe{probe.Network(a.host(), false)}, probe.Own(a.host(), req.Rules.Probes),
		probe.Names(a.host(), nil), []probe.Probe{probe.Time(a.host())})
	found, _, err := a.look(ctx, all)
	if err != nil {
		return nil, err
	}
	units, err := a.listUnits(ctx)
	if err != nil {
		return nil, err
	}
	b := &beforeUpdaters{Digest: req.Digest, Before: union(found, nil)}
	b.Boot, _ = bootOf(a.root)
	for _, u := range units {
		if u.Lasting && u.Active() && u.Name != resumeTimer && u.Name != resumeService {
			b.Units = append(b.Units, u.Name)
		}
	}
	return b, nil
}

// pendingUpdaters returns what was noted before registered updaters began, of which no run has seen yet that it still works.
func (a *Agent) pendingUpdaters() (*beforeUpdaters, error) {
	var known works
	_, err := a.state.load(worksFile, &known)
	return known.Updaters, err
}

// looksFirst reports whether a run asks what registered updaters have left before it begins refit's own part. What was noted for other specs is
// asked at its end only: refit's part for these may be what mends it.
func (w *work) looksFirst() bool { return w.Updaters != nil && w.Updaters.Digest == w.Digest }

// stepsFirst are the steps of a run that come before refit's own part.
func (a *Agent) stepsFirst(w *work) []step {
	if !w.looksFirst() {
		return nil
	}
	steps := []step{{stepUpdaters, func(ctx context.Context) (string, error) {
		return "", w.Updaters.blame(a.awaitProbes(ctx, w, a.leftByUpdaters(w)))
	}}}
	if w.soaksFirst() {
		steps = append(steps, step{stepSoak, func(ctx context.Context) (string, error) { return "", w.Updaters.blame(a.watchLeft(ctx, w)) }})
	}
	return steps
}

// leftByUpdaters returns the probes of what registered updaters have to have left as it was.
func (a *Agent) leftByUpdaters(w *work) []probe.Probe {
	units := probe.New(unitsStillRun, func(ctx context.Context) error { return a.noneFailed(ctx, w.Updaters.Units) })
	units.Look = "systemctl --failed on the node"
	return append(a.askedOf(w, w.Updaters.Before, true), units)
}

// noneFailed returns an error about units that have failed. One that was stopped may have been meant to be.
func (a *Agent) noneFailed(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	units, err := a.listUnits(ctx, names...)
	if err != nil {
		return err
	}
	var failed []string
	for _, u := range units {
		if u.ActiveState == "failed" && !u.Missing() {
			failed = append(failed, u.Name)
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, ", ") + " has failed")
	}
	return nil
}

// watchLeft looks for as long as the rules say whether the node goes on to work after registered updaters.
func (a *Agent) watchLeft(ctx context.Context, w *work) error {
	expected := a.leftByUpdaters(w)
	if err := a.awaitProbes(ctx, w, expected); err != nil { // the loss of power may have come in between
		return err
	}
	probed, err := a.probedUnits(ctx, expected)
	if err != nil {
		return err
	}
	return a.watchFor(ctx, w.soak(), expected, func() error { return a.probedStayUp(ctx, expected, probed) })
}

// blame says whose part an error comes after.
func (b *beforeUpdaters) blame(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("after the part of UpdaterRegistration %s, which refit can't take back: %w", strings.Join(b.Names, ", "), err)
}

// bootedSinceUpdaters reports whether the node was booted since registered updaters began.
func (a *Agent) bootedSinceUpdaters(w *work) bool {
	if w.Updaters == nil {
		return false
	}
	boot, err := bootOf(a.root)
	return err == nil && boot != w.Updaters.Boot
}

// keepUpdaters reports whether what was noted before registered updaters counts for the next run, too: this one has not begun refit's own part.
func (r *runner) keepUpdaters(end node.Status) bool {
	return end.State != node.Succeeded && !r.progress.started[stepPrepare]
}

// nothingBegun says that a run which has failed has changed nothing.
func (r *runner) nothingBegun() string {
	if r.work.looksFirst() && !r.progress.started[stepPrepare] {
		return "refit has not begun its own part on the node"
	}
	return "nothing was changed on the node"
}

// union returns what is in one of two lists, in order.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// isEmpty reports whether a run neither changes the node nor looks at what others have changed there, so that it ends at once.
func (w *work) isEmpty() bool {
	return len(w.Plan.Changes)+len(w.Plan.Actions) == 0 && w.Updaters == nil
}
