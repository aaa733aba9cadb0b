package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// worksFile is where it is noted what of the node worked before a run.
	worksFile = "works.json"
	// stepWorksBack is the step of a rollback that asks whether the node works again.
	stepWorksBack = "see that the node works again"
)

const (
	// worksLook is how often the node is asked whether it works.
	worksLook = 2 * time.Second
	// worksLooks is how often what does not work is asked before a run until it counts as broken before, and how often in a row
	// something may fail while the node is watched: once is no more than a moment of load.
	worksLooks = 3
)

// works is what of the node worked before a run, by the keys of the probes.
type works struct {
	// Before is what has to work when the run is done.
	Before []string `json:"before"`
	// Owed is as much of it as an earlier run has found and was not seen to leave. It may be broken now.
	Owed []string `json:"owed,omitempty"`
	// Units says which of the units that are acted on had worked, by the names that the actions have.
	Units map[string]bool `json:"units,omitempty"`
	// Updaters is what worked before registered updaters began, of which no run has seen yet that it still does.
	Updaters *beforeUpdaters `json:"updaters,omitempty"`
}

// noteWorks notes what works, before anything is changed. What an earlier run has broken, and could not put back, has to work too: else
// the next run would take a broken node for one that was so before. It returns notes for people.
func (a *Agent) noteWorks(ctx context.Context, w *work) ([]string, error) {
	if !a.asks(w) {
		return nil, nil
	}
	a.forgetReport() // it was about an earlier run
	var known works
	if _, err := a.state.load(worksFile, &known); err != nil {
		return nil, err
	}
	found, broken, err := a.look(ctx, a.askedBefore(w))
	if err != nil {
		return nil, err
	}
	if known.Units, err = a.noteUnits(ctx, w.Plan, known.Units); err != nil {
		return nil, err
	}
	known.Before = union(found, known.Owed)
	if w.Updaters != nil {
		known.Before = union(known.Before, w.Updaters.Before)
	}
	if len(known.Before)+len(known.Units) == 0 {
		return brokenBefore(broken, known), nil
	}
	return brokenBefore(broken, known), a.state.save(worksFile, known)
}

// look returns the keys of the probes that work, and what is wrong with those that do not. Each gets some chances.
func (a *Agent) look(ctx context.Context, all []probe.Probe) (found []string, broken []brokenProbe, err error) {
	for n := 1; ; n++ {
		var again []probe.Probe
		for _, p := range all {
			switch err := p.Ask(ctx); {
			case err == nil:
				found = append(found, p.Key())
			case errors.Is(err, probe.ErrAbsent):
			case n < tries(p):
				again = append(again, p)
			default:
				broken = append(broken, brokenProbe{p, err})
			}
		}
		if err := ctx.Err(); err != nil { // who is told to end has not found anything broken
			return nil, nil, err
		}
		if all = again; len(all) == 0 {
			return found, broken, nil
		}
		if err := a.cfg.Clock.Wait(ctx, worksLook); err != nil {
			return nil, nil, err
		}
	}
}

// brokenProbe is what does not work on a node, and why.
type brokenProbe struct {
	probe probe.Probe
	err   error
}

// brokenBefore tells people what did not work before a run, and is not asked for after it.
func brokenBefore(broken []brokenProbe, known works) []string {
	var parts []string
	for _, b := range broken {
		if !slices.Contains(known.Before, b.probe.Key()) {
			parts = append(parts, fmt.Sprintf("%s (%v)", b.probe.Name, b.err))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"before anything was changed, this did not work on the node, and it is not asked for after it: " + strings.Join(parts, "; ")}
}

// expected returns the probes of what has to work. After a run that has disturbed the node, what the Node object says must be from
// after it.
func (a *Agent) expected(w *work) ([]probe.Probe, error) {
	var noted works
	if ok, err := a.state.load(worksFile, &noted); err != nil || !ok {
		return nil, err
	}
	return a.askedAfter(w, noted.Before), nil
}

// awaitWorks waits until all works that worked before. After a reboot that may take as long as the boot.
func (a *Agent) awaitWorks(ctx context.Context, w *work) error {
	expected, err := a.expected(w)
	if err != nil {
		return err
	}
	return a.awaitProbes(ctx, w, expected)
}

// worksNow reports whether all works that worked before, and some of it was asked.
func (a *Agent) worksNow(ctx context.Context, w *work) bool {
	expected, err := a.expected(w)
	if err != nil || len(expected) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, a.patience(w, expected))
	defer cancel()
	return askAll(ctx, expected) == nil
}

func (a *Agent) awaitProbes(ctx context.Context, w *work, expected []probe.Probe) error {
	patience := a.patience(w, expected)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for waited := time.Duration(0); ; waited += worksLook {
		err := askAll(ctx, expected)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // that there is no time left is not what is wrong
			last = err
		}
		if waited >= patience || a.cfg.Clock.Wait(ctx, worksLook) != nil {
			return last
		}
	}
}

// askAll asks what does not cost much, and if all of that works, the rest.
func askAll(ctx context.Context, expected []probe.Probe) error {
	for _, costly := range []bool{false, true} {
		var first error
		var others []string
		for _, p := range expected {
			if p.Costly != costly {
				continue
			}
			switch err := p.Ask(ctx); {
			case err == nil:
			case first == nil:
				first = failure(p, err)
			default: // most likely for the same reason
				others = append(others, p.Name)
			}
		}
		if len(others) > 0 {
			first = fmt.Errorf("%w; nor does %s", first, strings.Join(others, ", "))
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// failure says what does not work any more, why, and where to look.
func failure(p probe.Probe, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s worked before and does not now: %w (see %s)", p.Name, err, p.Look)
}

// begunNothing reports whether the run has not touched the node.
func (r *runner) begunNothing() bool {
	changes, actions := r.begun()
	return len(changes)+len(actions) == 0 && r.progress.boots[stepReboot] == ""
}

// endWorks forgets what worked before a run that has ended, unless the run has left the node with less. After one that has begun
// nothing, that is what earlier runs have left.
func (r *runner) endWorks(end node.Status) {
	r.forgetReport()
	var noted works
	ok, err := r.state.load(worksFile, &noted)
	if err != nil || !ok {
		return
	}
	nothing := r.begunNothing()
	if !r.keepUpdaters(end) {
		noted.Updaters = nil
	}
	switch {
	case nothing && !r.owesWorks(noted), !nothing && end.RolledBack, end.State == node.Succeeded:
		_ = r.disk.Remove(r.state.path(worksFile)) // as long as it is there more has to work, which is the safe side
	case nothing:
		_ = r.state.save(worksFile, works{Before: noted.Owed, Owed: noted.Owed, Units: noted.Units, Updaters: noted.Updaters})
	default:
		_ = r.state.save(worksFile, works{Before: noted.Before, Owed: noted.Before, Units: noted.Units})
	}
}

// owesWorks reports whether something from before a run that has begun nothing still has to work.
func (r *runner) owesWorks(noted works) bool {
	return len(noted.Owed) > 0 || r.last.Debt != nil || noted.Updaters != nil
}
