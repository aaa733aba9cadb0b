package machineupdate

import (
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/schedule"
)

// disruptionOf returns the worst that a plan takes on the node. What restarts something whatever its actions are takes a restart.
func disruptionOf(plan node.Plan) string {
	worst := worstOf(plan.Actions)
	if plan.Interrupts() {
		worst = string(disruption.Worst(disruption.ActionType(worst), disruption.Restart))
	}
	return worst
}

// worstOf returns the type of that action which disturbs a node most.
func worstOf(actions []disruption.Action) string {
	types := make([]disruption.ActionType, len(actions))
	for i, a := range actions {
		types[i] = a.Type
	}
	return string(disruption.Worst(types...).OrReplace())
}

// kinds returns what the plan is of: another version of Kubernetes, and configuration if anything else changes. What changes nothing is
// configuration, too.
func (u *update) kinds() []string {
	var kinds []string
	other := func(c node.Change) bool { return c.Kind != node.VersionKind }
	if bringsVersion(u.plan) {
		of := inplace.VersionKinds(u.runs, u.regarding.Spec.Version)
		if len(of) == 0 { // the kubelet has it already, and something beside it has not
			of = []schedule.Kind{schedule.PatchVersionKind, schedule.MinorVersionKind}
		}
		for _, kind := range of {
			kinds = append(kinds, string(kind))
		}
	}
	if len(kinds) == 0 || slices.ContainsFunc(u.plan.Changes, other) {
		kinds = append(kinds, string(schedule.ConfigurationKind))
	}
	return kinds
}

// scoped reports whether policies were asked of which a part is for some changes only.
func (u *update) scoped() bool {
	if u.closed != nil && u.closed.decision != nil {
		return u.closed.decision.Scoped()
	}
	return u.opened.Scoped()
}
