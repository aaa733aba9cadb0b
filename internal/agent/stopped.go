package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// activeFile is where it is noted which units were active before a run.
	activeFile = "active.json"
	// stepStartAgain is the step of a rollback that starts what has stopped.
	stepStartAgain = "start again what has stopped"
)

// activeUnits are the units that have to be active when a run is done, whether the run acts on them or not: a unit stops with one that it
// requires, or when one starts that it conflicts with, and systemd does not start it again.
type activeUnits struct {
	// Before are those that were active before the run, and whether a boot starts them.
	Before map[string]bool `json:"before"`
	// Owed are those of them that an earlier run has found and was not seen to leave so.
	Owed map[string]bool `json:"owed,omitempty"`
	// Again are those that had stopped and were started again.
	Again []string `json:"again,omitempty"`
}

// stopsUnits reports whether a run can stop units.
func stopsUnits(plan node.Plan) bool {
	return plan.Disturbs() || slices.ContainsFunc(plan.Changes, func(c node.Change) bool { return c.Kind != node.FileKind })
}

// listUnits returns the units with these names, or all. Without names and without systemd there are none.
func (a *Agent) listUnits(ctx context.Context, names ...string) ([]host.LoadedUnit, error) {
	lister, ok := a.cfg.Units.(host.Lister)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	return lister.List(ctx, names...)
}

// noteActive notes which units are active, before anything is changed.
func (a *Agent) noteActive(ctx context.Context, w *work) error {
	if !stopsUnits(w.Plan) {
		return nil
	}
	var noted activeUnits
	if _, err := a.state.load(activeFile, &noted); err != nil {
		return err
	}
	units, err := a.listUnits(ctx)
	if err != nil {
		return err
	}
	noted.Before, noted.Again = map[string]bool{}, nil
	maps.Copy(noted.Before, noted.Owed)
	for _, u := range units {
		if u.Lasting && u.Active() && u.Name != resumeTimer && u.Name != resumeService {
			noted.Before[u.Name] = u.Enabled()
		}
	}
	if len(noted.Before) == 0 {
		return nil
	}
	return a.state.save(activeFile, noted)
}

// startAgain starts the units that were active before a run and have stopped since. Which units a boot starts is up to the node, so after
// one it is about those that are enabled. With back set all is to be as it was, else what the run itself stops stays so.
func (a *Agent) startAgain(ctx context.Context, w *work, back bool) error { //nolint:cyclop // one step after the other
	var noted activeUnits
	if ok, err := a.state.load(activeFile, &noted); err != nil || !ok {
		return err
	}
	booted := a.bootedSince()
	maps.DeleteFunc(noted.Before, func(_ string, atBoot bool) bool { return booted && !atBoot })
	names := slices.Sorted(maps.Keys(noted.Before))
	for _, action := range w.Plan.Actions { // what the run has started must not be stopped by this
		if action.Unit != "" && !slices.Contains(names, action.Unit) {
			names = append(names, action.Unit)
		}
	}
	first, err := a.listUnits(ctx, names...)
	if err != nil {
		return err
	}
	stopped := slices.DeleteFunc(slices.Clone(first), func(u host.LoadedUnit) bool {
		_, was := noted.Before[u.Name]
		return !was || !u.Stopped()
	})
	if !back {
		stopped = meantToRun(w, first, stopped)
	}
	if len(stopped) == 0 {
		return nil
	}
	before := noted.Again
	if err := a.saveAgain(before, namesOf(stopped)); err != nil && !back {
		return err
	}
	failed := a.startAll(ctx, stopped)
	if err := a.settle(ctx); err != nil {
		return err
	}
	second, err := a.listUnits(ctx, names...)
	if err != nil {
		return err
	}
	again, err := startedAgain(stopped, first, second, failed)
	_ = a.saveAgain(before, again) // for people only
	return err
}

// settle lets units that can't run show it.
func (a *Agent) settle(ctx context.Context) error {
	if a.cfg.Settle <= 0 {
		return nil
	}
	return a.cfg.Clock.Wait(ctx, a.cfg.Settle)
}

// startAll starts units, and returns why that has failed, by their names.
func (a *Agent) startAll(ctx context.Context, units []host.LoadedUnit) map[string]error {
	failed := map[string]error{}
	for _, u := range units {
		if u.ActiveState == "failed" {
			a.forgiveStarts(ctx, u.Name)
		}
		if u.Name == kubelet.Unit {
			a.noteReport(ctx)
		}
		one, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
		failed[u.Name] = a.cfg.Units.Do(one, "start", u.Name)
		cancel()
	}
	return failed
}

// startedAgain returns which of the units that had stopped are active again, and an error about the others, and about those that have
// stopped for that. A unit that systemd does not start for its own conditions need not run: it may be there to do something once.
func startedAgain( //nolint:cyclop // a table: one way in which it can end after the other
	stopped, first, second []host.LoadedUnit, failed map[string]error,
) (again []string, err error) {
	had := map[string]bool{}
	for _, u := range stopped {
		had[u.Name] = true
	}
	var wrong, away []string
	for i, u := range second {
		switch {
		case had[u.Name] && !u.Stopped():
			again = append(again, u.Name)
		case had[u.Name] && failed[u.Name] == nil && u.Unmet:
		case had[u.Name] && failed[u.Name] != nil:
			wrong = append(wrong, fmt.Sprintf("%s was active before, has stopped, and can't be started again: %v (see journalctl -u %s on the node)",
				u.Name, failed[u.Name], u.Name))
		case had[u.Name]:
			wrong = append(wrong, fmt.Sprintf("%s was active before, has stopped, and does not stay active when it is started again (see journalctl -u %s "+
				"on the node)", u.Name, u.Name))
		case u.Stopped() && !first[i].Stopped():
			away = append(away, u.Name)
		}
	}
	if len(away) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s was active before and had stopped, and %s stops when it is started again: they can't be active "+
			"together. If that is meant, have it be stopped: a unit with active: false",
			strings.Join(slices.Sorted(maps.Keys(had)), ", "), strings.Join(away, ", ")))
	}
	if len(wrong) > 0 {
		err = errors.New(strings.Join(wrong, "; "))
	}
	return again, err
}

// meantToRun leaves out of the units that have stopped what the run stops or removes, and what stops with that.
func meantToRun(w *work, all, stopped []host.LoadedUnit) []host.LoadedUnit {
	off := stoppedBy(w)
	for _, u := range all {
		if u.LoadState == "not-found" || u.LoadState == "masked" {
			off[u.Name] = true
		}
	}
	for more := true; more; {
		more = false
		for _, u := range stopped {
			if !off[u.Name] && (u.IsAmong(off) || !u.Lasting || slices.ContainsFunc(u.Needs, func(n string) bool { return off[n] })) {
				off[u.Name], more = true, true
			}
		}
	}
	return slices.DeleteFunc(stopped, func(u host.LoadedUnit) bool { return off[u.Name] })
}

// stoppedBy returns the units that a run is to stop.
func stoppedBy(w *work) map[string]bool {
	off := map[string]bool{}
	for _, c := range w.Plan.Changes {
		desired := w.Others[c.String()].Desired
		switch {
		case c.Kind == node.NTPKind: // which service keeps the time is what it is about
			for _, name := range []string{disruption.TimeSyncUnit, "chrony.service", "chronyd.service"} {
				off[name] = true
			}
		case c.Kind == node.UnitKind && desired != nil && desired.Unit != nil:
			u := desired.Unit
			off[u.Name] = u.Active != nil && !*u.Active || u.Masked != nil && *u.Masked && u.Active == nil
		}
	}
	return off
}

func namesOf(units []host.LoadedUnit) []string {
	names := make([]string, 0, len(units))
	for _, u := range units {
		names = append(names, u.Name)
	}
	return names
}

// saveAgain writes down which units were started again, before and now.
func (a *Agent) saveAgain(before, now []string) error {
	var noted activeUnits
	if ok, err := a.state.load(activeFile, &noted); err != nil || !ok {
		return err
	}
	noted.Again = slices.Compact(slices.Sorted(slices.Values(slices.Concat(before, now))))
	return a.state.save(activeFile, noted)
}

// saidAgain tells people which units had stopped during a run and were started again.
func (a *Agent) saidAgain() string {
	var noted activeUnits
	if ok, err := a.state.load(activeFile, &noted); err != nil || !ok || len(noted.Again) == 0 {
		return ""
	}
	return "; stopped with that, and started again: " + strings.Join(noted.Again, ", ")
}

// startBack is the step of a rollback that starts what has stopped, if it is known what was active before.
func (r *runner) startBack() []step {
	if ok, err := r.state.load(activeFile, &activeUnits{}); err == nil && !ok {
		return nil
	}
	return []step{{stepStartAgain, func(ctx context.Context) (string, error) {
		if err := r.awaitBoot(ctx); err != nil {
			return "", err
		}
		return "", r.startAgain(ctx, r.work, true)
	}}}
}

// endActive forgets which units were active before a run that has ended, as endWorks does with what has worked.
func (r *runner) endActive(end node.Status) {
	var noted activeUnits
	if ok, err := r.state.load(activeFile, &noted); err != nil || !ok {
		return
	}
	nothing := r.begunNothing()
	switch {
	case end.State == node.Succeeded || end.RolledBack && !nothing || nothing && len(noted.Owed) == 0:
		_ = r.disk.Remove(r.state.path(activeFile)) // as long as it is there more is started again, which is the safe side
	case nothing:
		_ = r.state.save(activeFile, activeUnits{Before: noted.Owed, Owed: noted.Owed})
	default:
		_ = r.state.save(activeFile, activeUnits{Before: noted.Before, Owed: noted.Before})
	}
}
