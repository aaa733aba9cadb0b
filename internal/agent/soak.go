package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
)

// stepSoak watches whether the node goes on to work.
const stepSoak = "watch the node"

// soak returns how long the node is watched before the run has succeeded.
func (w *work) soak() time.Duration {
	if w.Rules.Soak == nil || !w.disturbs() {
		return 0
	}
	return *w.Rules.Soak
}

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
	failed := map[string]int{}
	for left := w.soak(); left > 0 || len(failed) > 0; left -= worksLook {
		if left < -a.cfg.ActionTimeout { // one fails when another works again, on and on
			return "", errors.New("the node does not come to rest: now one thing that worked before does not, now another")
		}
		pause := worksLook
		if left > 0 {
			pause = min(left, worksLook)
		}
		if err := a.cfg.Clock.Wait(ctx, pause); err != nil {
			return "", err
		}
		if err := a.holds(ctx, expected, failed, left <= worksLook); err != nil {
			return "", err
		}
		if err := a.stayUp(ctx, actions, check, first); err != nil {
			return "", err
		}
	}
	return "", nil
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
		if p.Costly && !thorough && failed[p.Name] == 0 {
			continue
		}
		err := p.Ask(ctx)
		if err == nil {
			delete(failed, p.Name)
			continue
		}
		failed[p.Name]++
		most := worksLooks
		if p.Elsewhere {
			most = max(most, int(a.cfg.ActionTimeout/worksLook))
		}
		if failed[p.Name] >= most {
			return fmt.Errorf("%w; it did after the change, for a while", failure(p, err))
		}
	}
	return nil
}
