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

// believed returns what a node says of a run of an update, as far as that can be: the run and its steps are no earlier than the update was admitted or
// begun, and no later than end. A node's clock may be wrong, and set while it reboots; and a node says what it wants. Where the whole run was
// at another time it is moved, so that a clock that is wrong all the while changes no duration. Steps that began at no time are left out.
func believed(run node.Status, s *refitv1.MachineUpdateStatus, end time.Time) node.Status {
	end = end.Truncate(time.Second).Add(time.Second) // times of a status are whole seconds
	began := end
	if since, ok := workedSince(s); ok {
		began = since
	} else if s.StartedAt != nil {
		began = s.StartedAt.Time
	}
	if began.After(end) { // the clocks of two servers
		began = end
	}
	var skew time.Duration
	switch {
	case run.StartedAt.IsZero():
	case run.FinishedAt.After(end):
		skew = end.Sub(run.FinishedAt)
	case run.StartedAt.Before(began):
		skew = began.Sub(run.StartedAt)
	}
	within := func(t, earliest time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		if t = t.Add(skew); t.Before(earliest) {
			return earliest
		}
		if t.After(end) {
			return end
		}
		return t
	}
	run.StartedAt = within(run.StartedAt, began)
	run.FinishedAt = within(run.FinishedAt, latest(began, run.StartedAt))
	run.Steps = slices.DeleteFunc(slices.Clone(run.Steps[:min(len(run.Steps), node.MaxSteps)]), func(t node.StepTime) bool { return t.StartedAt.IsZero() })
	for i := range run.Steps {
		t := &run.Steps[i]
		t.StartedAt = within(t.StartedAt, began)
		t.FinishedAt = within(t.FinishedAt, t.StartedAt)
		t.Step = shorten(t.Step, maxStep)
		if t.Class != "" {
			t.Class = classOf(t.Class)
		}
	}
	return run
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
