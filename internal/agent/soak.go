package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// stepSoak watches whether the node goes on to work.
const stepSoak = node.StepSoak

// soak returns how long the node is watched before the run has succeeded.
func (w *work) soak() time.Duration {
	if w.Rules.Soak == nil || !w.Plan.Interrupts() && w.Updaters == nil {
		return 0
	}
	return *w.Rules.Soak
}

// soaksFirst reports whether the node is watched before refit's own part, for what registered updaters have done: that part is nothing to be
// watched for then, and stays out of it. Where it is, the node is watched once, for both.
func (w *work) soaksFirst() bool { return w.soak() > 0 && w.looksFirst() && !w.Plan.Interrupts() }

// soaksLast reports whether the node is watched when all is done.
func (w *work) soaksLast() bool { return w.soak() > 0 && !w.soaksFirst() }

// watch looks for as long as the rules say whether the node goes on to work, and units stay up. Who takes the run up, maybe after the
// loss of power, first waits until it does, and watches for all of that time.
func (a *Agent) watch(ctx context.Context, w *work) (string, error) {
	expected, err := a.expected(w)
	if err == nil {
		err = a.awaitProbes(ctx, w, expected)
	}
	if err != nil {
		return "", err
	}
	actions, check := a.unitsToVerify(w)
	first, err := a.firstLook(ctx, actions, check)
	if err != nil {
		return "", err
	}
	probed, err := a.probedUnits(ctx, expected)
	if err != nil {
		return "", err
	}
	return "", a.watchFor(ctx, w.soak(), expected, func() error {
		if err := a.stayUp(ctx, actions, check, first); err != nil {
			return err
		}
		return a.probedStayUp(ctx, expected, probed)
	})
}

// watchFor asks what is expected again and again, for a time and then until nothing fails. The time that probes take counts, in whole seconds.
func (a *Agent) watchFor(ctx context.Context, left time.Duration, expected []probe.Probe, stayUp func() error) error {
	failed := map[string]int{}
	over, last := time.Duration(0), left <= 0
	for ; !last || len(failed) > 0; left -= worksLook {
		if over > a.patienceAtRest(expected) { // one fails when another works again, on and on
			return errors.New("the node does not come to rest: now one thing that worked before does not, now another")
		}
		pause := worksLook
		if left > 0 {
			pause = min(left, worksLook)
		}
		if err := a.cfg.Clock.Wait(ctx, pause); err != nil {
			return err
		}
		if last {
			over += worksLook
		}
		last = left <= worksLook
		began := time.Now() // by a clock that the run can't have set
		if err := a.holds(ctx, expected, failed, last); err != nil {
			return err
		}
		if err := stayUp(); err != nil {
			return err
		}
		left -= time.Since(began).Truncate(time.Second)
	}
	return nil
}

// patienceAtRest is how long, by the pauses alone, something may fail after the time for which a node is watched.
func (a *Agent) patienceAtRest(expected []probe.Probe) time.Duration {
	most := a.cfg.ActionTimeout
	for _, p := range expected {
		most = max(most, time.Duration(p.Tries)*worksLook)
	}
	return most
}

// firstLook returns the states of the units that are watched.
func (a *Agent) firstLook(ctx context.Context, actions []disruption.Action, check unitCheck) (map[string]host.UnitState, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	states, _, err := a.lookAtUnits(ctx, actions, check)
	return states, err
}

// watching says that the node is watched, and for how long.
func (a *Agent) watching() string {
	w, err := a.state.loadWork()
	if err != nil {
		return "" // the run has just ended
	}
	return fmt.Sprintf("the node works; it is watched for %s whether it goes on to", w.soak())
}

// stayUp returns an error if a unit is not well, or was started again since it was looked at first.
func (a *Agent) stayUp(ctx context.Context, actions []disruption.Action, check unitCheck, first map[string]host.UnitState) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	now, _, err := a.lookAtUnits(ctx, actions, check)
	if err != nil {
		return err
	}
	return sameInvocations(first, now)
}

// holds asks each probe once, and returns an error if one has failed too often in a row. What others than this node can make fail has
// as long as it has after a change: an API server may be replaced meanwhile.
func (a *Agent) holds(ctx context.Context, expected []probe.Probe, failed map[string]int, thorough bool) error {
	for _, p := range expected {
		if p.Costly && !thorough && failed[p.Key()] == 0 {
			continue
		}
		err := p.Ask(ctx)
		if err == nil {
			delete(failed, p.Key())
			continue
		}
		failed[p.Key()]++
		most := tries(p)
		if p.Elsewhere {
			most = max(most, int(a.cfg.ActionTimeout/worksLook))
		}
		if failed[p.Key()] >= most {
			return fmt.Errorf("%w; it did after the change, for a while", failure(p, err))
		}
	}
	return nil
}
