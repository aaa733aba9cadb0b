package pending

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

const (
	// assumed is how long a change takes of which nobody knows.
	assumed = 10 * time.Minute
	// mostTries bounds how often one change is put off, by a window, a budget or others that are out.
	mostTries = 10000
)

// forecast says when changes are expected to be done, if each starts as soon as windows, budgets, and the number of those that may be out at once
// let it, the oldest first. It knows nothing of failures, drains that take long, and changes that are yet to come.
type forecast struct {
	now     time.Time
	lanes   map[string]*lane
	budgets map[string]*budget
	windows map[string]*windows
	spent   func(*changemanagement.Policy) changemanagement.Spent
}

func newForecast(now time.Time, spent func(*changemanagement.Policy) changemanagement.Spent) *forecast {
	return &forecast{now: now, lanes: map[string]*lane{}, budgets: map[string]*budget{}, windows: map[string]*windows{}, spent: spent}
}

// run sets when each of the entries is expected to be done. parallel returns the lanes that an entry takes.
func (f *forecast) run(entries []*entry, parallel func(*entry) []*lane) {
	defer func() {
		for _, w := range f.windows {
			w.stop()
		}
	}()
	entries = slices.Clone(entries)
	slices.SortFunc(entries, inOrder)
	controlPlanes := map[string]time.Time{} // when the upgrade of a Cluster's is done
	for _, e := range entries {
		from := e.earliest
		if e.upgrades(refitv1.WorkerRole) && !from.IsZero() {
			from = latest(from, controlPlanes[e.cluster.Name])
		}
		f.place(e, from, parallel(e))
		if e.upgrades(refitv1.ControlPlaneRole) {
			controlPlanes[e.cluster.Name] = latest(controlPlanes[e.cluster.Name], e.end)
		}
	}
}

// place sets when an entry is expected to be done that may start from an instant on, if that is known.
func (f *forecast) place(e *entry, from time.Time, lanes []*lane) {
	if e.underWay {
		e.end = f.now.Add(e.takes())
		for _, l := range lanes {
			l.take(e.end)
		}
		return
	}
	if from.IsZero() {
		return
	}
	if start, ok := f.start(e, from, lanes); ok {
		e.end = start.Add(e.takes())
		f.take(e, start, lanes)
	}
}

// inOrder sorts what is under way before what waits, control planes before workers, and the oldest configuration first.
func inOrder(a, b *entry) int {
	if a.underWay != b.underWay {
		return order(a.underWay)
	}
	if x, y := a.prospect.Role == refitv1.ControlPlaneRole, b.prospect.Role == refitv1.ControlPlaneRole; x != y {
		return order(x)
	}
	return cmp.Or(a.prospect.Configured.Compare(b.prospect.Configured), strings.Compare(a.machine.Name, b.machine.Name))
}

func order(first bool) int {
	if first {
		return -1
	}
	return 1
}

// takes is how long the change of an entry is expected to take.
func (e *entry) takes() time.Duration { return cmp.Or(e.prospect.Expected, assumed) }

// counts reports whether it counts against budgets: only updates do.
func (e *entry) counts() bool {
	return !e.free && (e.cause == refitv1.PendingInPlace || e.cause == refitv1.PendingUnknown)
}

// bounded reports whether it starts in a window. A MachineDeployment that has begun to replace its Machines goes on.
func (e *entry) bounded() bool {
	ofDeployment := e.machine.Labels[clusterv1.MachineDeploymentNameLabel] != ""
	return !e.free && (e.cause != refitv1.PendingReplacement || !ofDeployment)
}

// start returns when an entry starts, from an instant on.
func (f *forecast) start(e *entry, from time.Time, lanes []*lane) (time.Time, bool) {
	t := from
	for range mostTries {
		next := t
		for _, l := range lanes {
			next = latest(next, l.free())
		}
		if e.bounded() {
			var ok bool
			if next, ok = f.windowsOf(e).fit(next, e); !ok {
				return t, false
			}
		}
		if e.counts() { // in a window, by which starts are counted
			var ok bool
			if next, ok = f.afford(e, next); !ok {
				return t, false
			}
		}
		if next.Equal(t) {
			return t, true
		}
		t = next
	}
	return t, false
}

// afford returns when the budgets of an entry's policies let it start, from an instant on.
func (f *forecast) afford(e *entry, t time.Time) (time.Time, bool) {
	for _, p := range e.prospect.Budgeted {
		at, ok := f.budgetOf(p).next(t)
		if !ok {
			return t, false
		}
		t = latest(t, at)
	}
	return t, true
}

// take counts a start.
func (f *forecast) take(e *entry, start time.Time, lanes []*lane) {
	for _, l := range lanes {
		l.take(e.end)
	}
	if !e.counts() {
		return
	}
	for _, p := range e.prospect.Budgeted {
		f.budgetOf(p).take(start, e.end)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// windows are those of some policies together, as far as they were looked at.
type windows struct {
	known  []schedule.Window
	pull   func() (schedule.Window, bool)
	stop   func()
	fitted bool // a change has to fit into one
}

// windowsOf returns the windows of an entry's policies, as they are for its change.
func (f *forecast) windowsOf(e *entry) *windows {
	key := strings.Builder{}
	fitted := false
	for _, s := range e.prospect.Schedules {
		fmt.Fprintf(&key, "%p ", s)
		fitted = fitted || s.Fit() == schedule.FitRequired
	}
	w, ok := f.windows[key.String()]
	if !ok {
		w = &windows{fitted: fitted}
		w.pull, w.stop = iter.Pull(schedule.Windows(f.now, f.now.Add(schedule.DefaultHorizon), e.prospect.Schedules...))
		f.windows[key.String()] = w
	}
	return w
}

// fit returns when an entry can start in a window, from an instant on.
func (w *windows) fit(t time.Time, e *entry) (time.Time, bool) {
	for i := 0; ; i++ {
		if i == len(w.known) {
			next, ok := w.pull()
			if !ok {
				return t, false
			}
			w.known = append(w.known, next)
		}
		one := w.known[i]
		at := latest(t, one.Start)
		if one.End.IsZero() || at.Before(one.End) && (!w.fitted || e.prospect.Probe || one.End.Sub(at) >= e.prospect.Expected) {
			return at, true
		}
	}
}
