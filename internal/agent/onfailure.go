package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
)

// debt is what a node has not done yet so that it runs with the files that are there: a failed run has left it behind. The
// next run, which a person, a policy or new specs ask for, does it whatever else it does.
type debt struct {
	// Boot is the boot of the node in which it owes. In any other it has read what is there. Empty: boots can't be told apart.
	Boot string `json:"boot,omitempty"`
	// Actions are owed, merged and in order.
	Actions []disruption.Action `json:"actions"`
	// Why is a remark for people.
	Why string `json:"why"`
}

// debt returns what the node owes, or nil.
func (a *Agent) debt() (*debt, error) {
	last, err := a.state.loadStatus()
	if err != nil || last == nil || last.Debt == nil {
		return nil, err
	}
	if last.Debt.Boot == "" {
		return last.Debt, nil
	}
	boot, err := bootOf(a.root)
	if err != nil || boot != last.Debt.Boot {
		return nil, err
	}
	return last.Debt, nil
}

// afterFailure ends what a failed run has begun, as the rules say. An error says that the run was interrupted.
func (r *runner) afterFailure(ctx context.Context) (outcome, error) {
	switch r.work.Rules.OnFailure {
	case disruption.StopOnFailure:
		if lost, err := r.lost(ctx); err != nil {
			return outcome{}, err
		} else if !lost {
			return r.stopHere(), nil
		}
	case disruption.RebootOnFailure:
		if r.work.WayIn != "" {
			break // nobody can have a node reboot that nobody comes in to
		}
		if boot, err := bootOf(r.root); err == nil && r.rebootHelps() {
			if lost, err := r.lost(ctx); err != nil {
				return outcome{}, err
			} else if !lost {
				return r.leaveToReboot(boot), nil
			}
		}
	default:
	}
	return r.rollBack(ctx)
}

// stopHere leaves the node as it is, and notes what it still has to do.
func (r *runner) stopHere() outcome {
	message := fmt.Sprintf("%s failed: %s; ", r.progress.failed.Step, r.progress.failed.Error)
	changes, actions := r.begun()
	if len(changes)+len(actions) == 0 {
		return outcome{complete: r.last.Debt == nil, message: message + r.nothingBegun()}
	}
	message += "the node was left as it is, as the policy says; begun: " + strings.Join(r.names(r.progress.started), ", ")
	boot, _ := bootOf(r.root) // without it the actions are owed until they are done
	return outcome{message: message, debt: &debt{
		Boot: boot, Actions: r.work.Plan.Actions,
		Why: "an earlier run has stopped half way, so what it had to do on the node is done again",
	}}
}

// names returns the steps of the run that change the node, of those in the set.
func (r *runner) names(of map[string]bool) []string {
	var names []string
	for _, s := range r.steps(r.work) {
		if of[s.name] && !slices.Contains([]string{stepUpdaters, stepArm, stepPrepare, stepVerify, stepConfirm, stepSoak, stepRecord}, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

// rebootHelps reports whether all was written and only did not take effect. A node that a run has rebooted, or that had to do what
// an earlier run owed, is not rebooted on and on.
func (r *runner) rebootHelps() bool {
	if reboots(r.work.Plan.Actions) || r.last.Debt != nil {
		return false
	}
	for _, c := range r.work.Plan.Changes {
		if !r.progress.done[changeName(c)] {
			return false
		}
	}
	return r.progress.done[stepPrepare] && r.progress.failed.Step != stepRecord
}

// leaveToReboot leaves what was written, for the node to read it when it boots. Its pods are moved away before: that is for the
// server to do, so the reboot is part of the next run.
func (r *runner) leaveToReboot(boot string) outcome {
	return outcome{
		message: fmt.Sprintf("%s failed: %s; what was written stays, and the node has to be rebooted to read it, as the policy says",
			r.progress.failed.Step, r.progress.failed.Error),
		needsReboot: true,
		debt: &debt{
			Boot: boot, Actions: []disruption.Action{{Type: disruption.Reboot}},
			Why: "an earlier run could not make its changes take effect, so the node is rebooted, as the policy says",
		},
	}
}

// owe adds to a plan what the node owes from before.
func (p *planner) owe(lists [][]disruption.Action) [][]disruption.Action {
	if p.owed == nil {
		return lists
	}
	p.note(p.owed.Why)
	return append(lists, p.owed.Actions)
}

// rolledBackDebt is that of a node that was booted with files which were put back after it.
func rolledBackDebt(boot string) *debt {
	return &debt{
		Boot: boot, Actions: []disruption.Action{{Type: disruption.Reboot}},
		Why: "a run that failed after a reboot has put files back, which the node has not read since: it is rebooted",
	}
}

// leftBehind returns what a failed run that changed nothing has found.
func (r *runner) leftBehind() string {
	if r.last.Debt != nil {
		return "what an earlier run has changed stays on the node, and the node has not come to run with it; look at it before anything else is done to it"
	}
	return r.nothingBegun()
}
