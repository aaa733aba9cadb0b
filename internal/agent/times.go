package agent

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

// addTime adds to the times of steps what an entry of the journal says about one.
func (p *progress) addTime(e node.JournalEntry) {
	switch e.Event {
	case eventStarted, eventAwaited:
		if !p.started[e.Step] {
			p.times = append(p.times, node.StepTime{Step: e.Step, StartedAt: e.Time})
		}
	case eventDone, eventFailed:
		for i, t := range slices.Backward(p.times) { // it is the last, as a rule
			if t.Step == e.Step {
				p.times[i].FinishedAt, p.times[i].Failed = e.Time, e.Event == eventFailed
				return
			}
		}
	}
}

// timesOf returns the times of the steps of a run, with the class of each. Of more than node.MaxSteps those that took longest, or failed, are there.
func timesOf(w *work, times []node.StepTime) []node.StepTime {
	classes := map[string]string{}
	for _, c := range w.Plan.Changes {
		classes[changeName(c)] = string(c.Operation)
	}
	for _, a := range onNode(w.Plan.Actions) {
		classes[actionName(a)] = string(a.Type)
	}
	times = slices.Clone(times)
	for i := range times {
		times[i].Class = classes[times[i].Step]
	}
	if len(times) <= node.MaxSteps {
		return times
	}
	slices.SortStableFunc(times, func(a, b node.StepTime) int { return cmp.Compare(weight(b), weight(a)) })
	times = times[:node.MaxSteps]
	slices.SortStableFunc(times, func(a, b node.StepTime) int { return a.StartedAt.Compare(b.StartedAt) })
	return times
}

// weight is how much the time of a step tells.
func weight(t node.StepTime) time.Duration {
	if t.Failed || t.FinishedAt.IsZero() {
		return math.MaxInt64
	}
	return t.FinishedAt.Sub(t.StartedAt)
}
