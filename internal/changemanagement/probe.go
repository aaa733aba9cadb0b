package changemanagement

import (
	"fmt"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// decideNow decides as of now, by policies and their health gates.
func (g *Gate) decideNow(r *record) Decision {
	d := g.decideByPolicies(r)
	if d.Open {
		g.askGates(&d, r)
	}
	return d
}

// decideByPolicies decides as of now. What was measured can be wrong for ever where it closes all windows, since nothing starts then and nothing is
// measured again: if an update would fit that takes as long as the policies expect, one starts in each window.
func (g *Gate) decideByPolicies(r *record) Decision {
	now := g.Clock.Now()
	d := Decide(now, r.candidate, r.policies, r.change)
	if d.Reason != schedule.NeverFits || r.change.Expected == 0 {
		return d
	}
	probe := Decide(now, r.candidate, r.policies, r.change.asExpected())
	if probe.NextChangeETASeconds < 0 {
		return d
	}
	probe.Probe = true
	probe.measuredWhy = fmt.Sprintf("no window is as long as such updates were measured to take, %s, so that one starts in each window, by expectedDuration, to measure again",
		r.change.Expected)
	probe.limits = append(probe.limits, "measured", r.change.Expected.String())
	probe.Message += "; " + probe.measuredWhy
	return probe
}

// asExpected is the change as it is where nothing was measured.
func (c Change) asExpected() Change {
	c.Expected = 0
	return c
}

// orProbe returns what is decided by what was measured; if that fits no window, what is decided for the one that starts in each.
func orProbe(measured time.Duration, decide func(expected time.Duration) schedule.Decision) schedule.Decision {
	d := decide(measured)
	if d.Reason == schedule.NeverFits && measured > 0 {
		return decide(0)
	}
	return d
}

// probed reports whether an update of the kind has started in the window already.
func (b *books) probed(d *Decision, r *record) bool {
	for _, e := range b.entries {
		o := e.record
		if o == nil || o.worst != r.worst || o.candidate.Role != r.candidate.Role || !shares(o.policies, r.policies) {
			continue
		}
		for _, at := range o.starts {
			if d.Window == nil || !at.Before(d.Window.Start) {
				return true
			}
		}
	}
	return false
}

func shares(a, b []*Policy) bool {
	for _, p := range a {
		if selectedBy(b, p) {
			return true
		}
	}
	return false
}

// waitForProbe closes a decision whose window has had its probe.
func (d *Decision) waitForProbe(now time.Time) {
	d.Open, d.Reason, d.PermissiveRemainingSeconds = false, schedule.NeverFits, 0
	d.NextChangeETASeconds = schedule.SecondsNone
	d.Message = d.measuredWhy + "; this window has had its one"
	if d.Window == nil || d.Window.End.IsZero() {
		return
	}
	for w := range schedule.Windows(d.Window.End, d.Window.End.Add(schedule.DefaultHorizon), d.schedules...) {
		d.NextChangeETASeconds = int64((w.Start.Sub(now) + time.Second - 1) / time.Second)
		at := w.Start.UTC().Format(time.RFC3339)
		d.Message, d.limits = d.Message+", and the next one opens at "+at, append(d.limits, at)
		break
	}
}
