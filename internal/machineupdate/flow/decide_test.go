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
		"but not without end":                                              {planned(), func(s *flow.State) { s.Waits, s.Reboots, s.Overdue = flow.Unreachable, true, true }, flow.Fail},
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
