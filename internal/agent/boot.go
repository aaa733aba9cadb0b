package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

const (
	// bootPatience is how long the units of a node may take to come up after a reboot. cloud-init can take minutes.
	bootPatience = 10 * time.Minute
	// bootLook is how often it is looked whether a boot has ended.
	bootLook = time.Second
)

// notUpError says that a boot has not ended.
type notUpError struct{ state string }

// Error implements error.
func (e *notUpError) Error() string {
	return fmt.Sprintf("the node is still %s %s after the reboot (see systemctl list-jobs on the node)", e.state, bootPatience)
}

// awaitUp waits until systemd has started all that a boot starts, and returns a note if not all of it is well.
func (a *Agent) awaitUp(ctx context.Context) (note string, err error) {
	state := ""
	for waited := time.Duration(0); waited < bootPatience; waited += bootLook {
		if state, err = a.systemState(ctx); err != nil {
			return "", err
		}
		switch state {
		case "initializing", "starting", systemStopping: // when it goes down, this process does so too
		case "degraded":
			return "not all units came up after the reboot (see systemctl --failed on the node)", nil
		default:
			return "", nil
		}
		if err := a.cfg.Clock.Wait(ctx, bootLook); err != nil {
			return "", err
		}
	}
	return "", &notUpError{state}
}

// bootedSince reports whether the node was booted since its run has begun, be it that the run had it reboot or that it lost power. Units
// may then be on their way up, and which the boot starts is up to the node.
func (a *Agent) bootedSince() bool {
	last, err := a.state.loadStatus()
	if err != nil || last == nil {
		return false
	}
	boot, err := bootOf(a.root)
	return err == nil && boot != last.Boot
}

// justBooted reports whether a boot may still be under way, for as long as one may take.
func (a *Agent) justBooted() bool {
	_, up, err := uptimeOf(a.root)
	return a.bootedSince() || err == nil && up < bootPatience
}

// awaitBoot waits, where the node was booted in the middle of the run or just before it, until that boot has started all that it starts:
// what comes up yet does not work yet, and says nothing of the change. That the boot does not end is no failure of the run. What is looked
// at next tells. A run that changes nothing is worked on while somebody waits for the answer, and looks at nothing that comes up, unless it
// looks at what registered updaters have left.
func (r *runner) awaitBoot(ctx context.Context) error {
	if r.waited || r.cfg.Units == nil || r.work.isEmpty() || !r.justBooted() {
		return nil
	}
	r.waited = true
	_, _ = r.awaitUp(ctx)
	return ctx.Err()
}

// waitsItself reports whether a run that goes on waits for the boot by itself, or must not wait: a login that was awaited in another boot
// does not come any more, and nothing is to keep the node from putting everything back.
func (r *runner) waitsItself() bool {
	return r.progress.awaits() || r.progress.boots[stepReboot] != "" && !r.progress.done[stepVerify]
}

// unitCheck returns how the units are looked at on which the run has acted.
func (a *Agent) unitCheck() unitCheck {
	if a.bootedSince() {
		return host.UnitState.CheckBooted
	}
	return host.UnitState.Check
}

// unitsToVerify returns the actions whose units are looked at after a run, and how.
func (a *Agent) unitsToVerify(w *work) ([]disruption.Action, unitCheck) {
	if reboots(w.Plan.Actions) {
		return a.toShow(w, unitActions(w)), host.UnitState.CheckBooted
	}
	return a.toShow(w, w.Plan.Actions), a.unitCheck()
}

// endsHere reports whether a failure says nothing, since this process is to end, or somebody shuts the node down: units stop then, and what
// they serve goes away. A node that goes down for longer than a boot may take does not come to an end.
func (r *runner) endsHere(ctx context.Context, failure error) bool {
	if ctx.Err() != nil {
		return true
	}
	var notUp *notUpError
	if r.cfg.Units == nil || errors.As(failure, &notUp) {
		return false
	}
	down, err := r.stopping(ctx)
	return err == nil && down
}
