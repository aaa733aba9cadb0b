package flow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// present is a Machine that may be worked on, of which nothing more is known.
func present() flow.State {
	return flow.State{Record: flow.Record{Kept: true, Clean: true}, Seen: flow.Seen{Machine: flow.Present, Asked: true}}
}

// planned is an update whose node has said what is to be done, with the node's lease.
func planned() flow.State {
	s := present()
	s.Specs, s.Window, s.Access, s.Workload, s.Leased, s.Connected = true, flow.Open, true, flow.Reached, true, true
	s.Last, s.Plan = flow.Idle, flow.Plan{Known: true, Effect: flow.Disturbing, Drains: true}
	return s
}

// atWorkNow has an updater be at work, and the node's lease be held.
func atWorkNow(s *flow.State) {
	s.Changed, s.Clean, s.Specs, s.Window, s.Workload, s.Leased, s.Allowed, s.Due = true, false, true, flow.Open, flow.Reached, true, true, true
	s.Updaters, s.Admission = flow.AtWork, flow.Disturbing
}

// begins has all questions of a start be answered.
func begins(s *flow.State) {
	s.Admitted, s.Marked, s.Protected, s.Draining, s.Drained, s.Allowed, s.Spared = true, true, true, true, true, true, true
}

// TestDecide has the cases that a history comes to seldom.
func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		from   flow.State
		change func(*flow.State)
		want   flow.Command
	}{
		"an update ends with its Machine, also one that was abandoned": {present(), func(s *flow.State) { s.Machine, s.Abandon = flow.Leaving, true }, flow.ReleaseMachine},
		"what has failed waits as it is for its rollback":              {present(), func(s *flow.State) { s.Machine, s.Failed, s.Rollback = flow.HeldBack, true, true }, flow.LookAgain},
		"what has failed stays so while its node can't be released": {present(), func(s *flow.State) {
			s.Abandon, s.Failed, s.Work = true, true, flow.Unreleased
		}, flow.AbandonLater},
		"nothing is asked for without the finalizer":                       {present(), func(s *flow.State) { s.Kept = false }, flow.AddFinalizer},
		"a node that reboots is waited for":                                {planned(), func(s *flow.State) { s.Waits, s.Reboots = flow.Unreachable, true }, flow.AwaitBoot},
		"but not without end":                                              {planned(), func(s *flow.State) { s.Waits, s.Reboots, s.Overdue = flow.Unreachable, true, true }, flow.ReleaseNode},
		"an update fails when its node is released":                        {planned(), func(s *flow.State) { s.Broken, s.Released = "NotVerified", true }, flow.Fail},
		"and not before":                                                   {planned(), func(s *flow.State) { s.Broken = "NotVerified" }, flow.ReleaseNode},
		"and waits while it can't be":                                      {planned(), func(s *flow.State) { s.Broken, s.Work = "NotVerified", flow.Unreleased }, flow.Wait},
		"what a policy holds back takes no slot":                           {planned(), func(s *flow.State) { s.Leased, s.Window, s.Planned = false, flow.Closed, flow.Disturbing }, flow.Lock},
		"a node that has drifted is not updated where a policy refuses it": {planned(), func(s *flow.State) { s.Plan.Refused = true }, flow.RefuseDrift},
		"but work that has begun there ends":                               {planned(), func(s *flow.State) { s.Plan.Refused, s.Last = true, flow.Running }, flow.Note},
		"staging waits for the window":                                     {planned(), func(s *flow.State) { s.Plan.Stages, s.Plan.Source, s.Window = true, true, flow.Closed }, flow.Note},
		"unless it may be early": {planned(), func(s *flow.State) {
			s.Plan.Stages, s.Plan.Source, s.Plan.Early, s.Window = true, true, true, flow.Closed
		}, flow.Stage},
		"work that is under way is followed without a lease": {planned(), func(s *flow.State) { s.Leased, s.Workload, s.Last = false, flow.Away, flow.Running }, flow.Work},
		"and nothing begins without one":                     {planned(), func(s *flow.State) { s.Leased, s.Workload = false, flow.Away }, flow.AwaitWorkload},
		"after a drain the lease is asked once more": {planned(), func(s *flow.State) {
			s.Admitted, s.Marked, s.Protected, s.Draining, s.Drained = true, true, true, true, true
		}, flow.Check},
		"an updater at work goes on before the node is asked":  {present(), atWorkNow, flow.CallUpdater},
		"with the question whether somebody holds the node":    {present(), func(s *flow.State) { atWorkNow(s); s.Allowed = false }, flow.Check},
		"and without the lease while the API server is away":   {present(), func(s *flow.State) { atWorkNow(s); s.Leased, s.Workload = false, flow.Away }, flow.CallUpdater},
		"no policy holds it back":                              {present(), func(s *flow.State) { atWorkNow(s); s.Window, s.Planned = flow.ClosedToAll, flow.Disturbing }, flow.CallUpdater},
		"its node is kept during a hold":                       {present(), func(s *flow.State) { atWorkNow(s); s.Waits, s.Preempted = "Hold", true }, flow.Wait},
		"and when nobody asks any more":                        {present(), func(s *flow.State) { atWorkNow(s); s.Asked = false }, flow.Wait},
		"but not from who gives it up":                         {present(), func(s *flow.State) { atWorkNow(s); s.Abandon = true }, flow.ReleaseNode},
		"none begins while the node works for other specs":     {planned(), func(s *flow.State) { s.Due, s.Busy, s.Plan = true, true, flow.Plan{} }, flow.AwaitNode},
		"nor before the pods have left":                        {planned(), func(s *flow.State) { s.Due = true; begins(s); s.Drained = false }, flow.Drain},
		"what works is noted before it begins":                 {planned(), func(s *flow.State) { s.Due = true; begins(s) }, flow.NoteWorks},
		"then it begins before the node":                       {planned(), func(s *flow.State) { s.Due, s.Works = true, true; begins(s) }, flow.CallUpdater},
		"but not before the end of what the node is at":        {planned(), func(s *flow.State) { s.Due, s.Last = true, flow.Running; begins(s) }, flow.Work},
		"the node's part goes on by the admission of updaters": {planned(), func(s *flow.State) { s.Updaters, s.Admission, s.Window = flow.Done, flow.Disturbing, flow.Closed }, flow.GoOn},
		"and for other specs policies are asked":               {planned(), func(s *flow.State) { s.Updaters = flow.Done }, flow.Note},
		"and the other nodes": {planned(), func(s *flow.State) {
			s.Admitted, s.Marked, s.Protected, s.Drained, s.Allowed = true, true, true, true, true
		}, flow.Spare},
	} {
		t.Run(name, func(t *testing.T) {
			tc.change(&tc.from)
			c, _ := flow.Decide(tc.from)
			require.Equal(t, tc.want, c)
		})
	}
}
