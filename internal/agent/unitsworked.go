package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// worked reports whether a unit has worked in this boot of the node: it runs, or has ended well. One that has failed, or that nobody has
// started, has not.
func (a *Agent) worked(ctx context.Context, unit string) bool {
	_, state, err := a.loaded(ctx, unit)
	if err != nil || state.Missing() {
		return true // which has to be shown: nothing is known against it
	}
	return state.ActiveState != "failed" && (state.ActiveState != "inactive" || state.InvocationID != "")
}

// noteUnits adds to known which of the units that a run acts on have worked before. What an earlier run has found before it, and could
// not put back, stays so; of a unit that it owes and of which nothing is known more is asked.
func (a *Agent) noteUnits(ctx context.Context, plan node.Plan, known map[string]bool) (map[string]bool, error) {
	owed, err := a.debt()
	if err != nil || a.cfg.Units == nil {
		return known, err
	}
	units := map[string]bool{}
	for _, action := range slices.Concat(plan.Actions, changedUnits(plan)) {
		if action.Unit != "" {
			units[action.Unit] = owed != nil && onUnit(owed.Actions, action.Unit) || a.worked(ctx, action.Unit)
		}
	}
	maps.Copy(units, known)
	return units, nil
}

func onUnit(actions []disruption.Action, unit string) bool {
	return slices.ContainsFunc(actions, func(a disruption.Action) bool { return a.Unit == unit })
}

// neverWorked reports whether it is known of a unit that it did not work before the run.
func (a *Agent) neverWorked(unit string) bool {
	var noted works
	if ok, err := a.state.load(worksFile, &noted); err != nil || !ok || unit == "" {
		return false
	}
	worked, ok := noted.Units[unit]
	return ok && !worked
}

// bringsNothing reports whether a run brings nothing new to a unit: it only takes back what concerns it, or does what is owed.
func bringsNothing(w *work, unit string) bool {
	return !slices.ContainsFunc(w.Plan.Changes, func(c node.Change) bool {
		return c.Operation == node.Write && onUnit(c.Actions, unit)
	})
}

// forgive returns a note instead of the error of an action on a unit that did not work before either. It is for what takes back: a run that
// brings something to a unit has to show that it works with that.
func (a *Agent) forgive(ctx context.Context, action disruption.Action, note string, err error) (string, error) {
	if err == nil || ctx.Err() != nil || !a.neverWorked(action.Unit) {
		return note, err
	}
	return fmt.Sprintf("%s failed, and %s did not work before either: %v", actionName(action), action.Unit, err), nil
}

// forgiving is act for a run that goes forward.
func (a *Agent) forgiving(ctx context.Context, w *work, action disruption.Action) (string, error) {
	note, err := a.act(ctx, action)
	if !bringsNothing(w, action.Unit) {
		return note, err
	}
	return a.forgive(ctx, action, note, err)
}

// haveWorked leaves out of actions those on units that did not work before a run.
func (a *Agent) haveWorked(actions []disruption.Action) []disruption.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(action disruption.Action) bool { return a.neverWorked(action.Unit) })
}

// toShow leaves out of actions those on units that did not work before a run which brings nothing to them.
func (a *Agent) toShow(w *work, actions []disruption.Action) []disruption.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(action disruption.Action) bool {
		return bringsNothing(w, action.Unit) && a.neverWorked(action.Unit)
	})
}
