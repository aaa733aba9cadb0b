package machineupdate

import (
	"slices"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// workedSince is when the work of an update was admitted. It returns false for one that was not.
func workedSince(s *refitv1.MachineUpdateStatus) (time.Time, bool) {
	switch {
	case s.Admission != nil:
		return s.Admission.AdmittedAt.Time, true
	case len(s.Starts) > 0 && s.StartedAt != nil && !s.Starts[0].Before(s.StartedAt): // it has failed, and the node is as it was
		return s.Starts[0].Time, true
	default:
		return time.Time{}, false
	}
}

// period is in which a node can have worked for an update, as the server knows it.
type period struct {
	began, end time.Time
	// skew is by how much the node's clock is moved.
	skew time.Duration
}

// periodOf is that of an update, which ends, for a run of it. A run that was all at another time is moved into it.
func periodOf(s *refitv1.MachineUpdateStatus, end time.Time, run *node.Status) period {
	p := period{end: end.Truncate(time.Second).Add(time.Second)} // times of a status are whole seconds
	p.began = p.end
	if since, ok := workedSince(s); ok {
		p.began = since
	} else if s.StartedAt != nil {
		p.began = s.StartedAt.Time
	}
	if p.began.After(p.end) { // the clocks of two servers
		p.began = p.end
	}
	switch {
	case run.StartedAt.IsZero():
	case run.FinishedAt.After(p.end):
		p.skew = p.end.Sub(run.FinishedAt)
	case run.StartedAt.Before(p.began):
		p.skew = p.began.Sub(run.StartedAt)
	}
	return p
}

// within returns a time of the node's that is in the period, and no earlier than another one is. No time is none.
func (p *period) within(t, earliest time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = t.Add(p.skew); t.After(p.end) {
		t = p.end
	}
	return latest(t, latest(earliest, p.began))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// believed returns what a node says of a run of an update, as far as that can be: the run and its steps are no earlier than the update was admitted or
// begun, and no later than end. A node's clock may be wrong, and set while it reboots; and a node says what it wants. Where the whole run was
// at another time it is moved, so that a clock that is wrong all the while changes no duration. Steps that began at no time are left out.
func believed(run node.Status, s *refitv1.MachineUpdateStatus, end time.Time) node.Status {
	p := periodOf(s, end, &run)
	run.StartedAt = p.within(run.StartedAt, p.began)
	run.FinishedAt = p.within(run.FinishedAt, run.StartedAt)
	run.Steps = slices.DeleteFunc(slices.Clone(run.Steps[:min(len(run.Steps), node.MaxSteps)]), func(t node.StepTime) bool { return t.StartedAt.IsZero() })
	for i := range run.Steps {
		t := &run.Steps[i]
		t.StartedAt = p.within(t.StartedAt, p.began)
		t.FinishedAt = p.within(t.FinishedAt, t.StartedAt)
		t.Step = shorten(t.Step, maxStep)
		if t.Class != "" {
			t.Class = classOf(t.Class)
		}
	}
	return run
}
