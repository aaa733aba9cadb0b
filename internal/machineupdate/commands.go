package machineupdate

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// mostCommands bounds a reconciliation. An update takes some forty; one that takes more does not end, which is a fault of flow.
const mostCommands = 200

// command does what was decided. It reports whether the reconciliation goes on, with a state that says more than before.
type command func(*update, context.Context) (ctrl.Result, bool, error)

// commands are all that flow can ask for.
var commands map[flow.Command]command

func init() { //nolint:gochecknoinits // commands run, and run has them done
	commands = map[flow.Command]command{
		flow.FindOwners:      gathers((*update).findOwners),
		flow.Stay:            ends((*update).stay),
		flow.AskWork:         gathers((*update).askWork),
		flow.AskLogin:        gathers((*update).askLogin),
		flow.RemoveFinalizer: ends(only((*update).removeFinalizer)),
		flow.FindMachine:     gathers((*update).findMachine),
		flow.AddFinalizer:    gathers(always((*update).addFinalizer)),
		flow.Abandon:         ends((*update).abandon),
		flow.AbandonLater:    ends((*update).abandonLater),
		flow.RollBack:        (*update).rollBack,
		flow.Withdraw:        ends((*update).withdraw),
		flow.Begin:           gathers(always((*update).begin)),
		flow.ReleaseMachine:  gathers((*update).releaseMachine),
		flow.Stop:            ends(func(*update, context.Context) (ctrl.Result, error) { return ctrl.Result{}, nil }),
		flow.LookAgain:       ends((*update).lookAgain),
		flow.Wait:            ends((*update).wait),
		flow.AwaitBoot:       ends((*update).awaitBoot),
		flow.Fail:            ends((*update).failFor),
		flow.CheckRepair:     gathers((*update).checkRepair),
		flow.WithdrawRepair:  ends(only((*update).withdrawRepair)),
		flow.ReadSpecs:       gathers((*update).readRequest),
		flow.AskPolicies:     gathers((*update).askPolicies),
		flow.FindAccess:      gathers((*update).findLogin),
		flow.ReachWorkload:   gathers((*update).reach),
		flow.TakeSlot:        gathers((*update).takeSlot),
		flow.Lock:            gathers((*update).lock),
		flow.AwaitWorkload:   gathers(func(*update, context.Context) (*wait, error) { return apiAway(), nil }),
		flow.Connect:         gathers((*update).connect),
		flow.Look:            gathers((*update).look),
		flow.AskNode:         gathers((*update).askNode),
		flow.NoteWorks:       gathers((*update).noteWorks),
		flow.CallUpdater:     (*update).callUpdater,
		flow.AwaitNode:       gathers((*update).awaitNode),
		flow.RefuseDrift:     gathers((*update).refuseDrift),
		flow.Stage:           (*update).stage,
		flow.StageNext:       ends(func(*update, context.Context) (ctrl.Result, error) { return ctrl.Result{RequeueAfter: retryStage}, nil }),
		flow.Note:            gathers(always((*update).note)),
		flow.GoOn:            gathers(always((*update).goOn)),
		flow.AdmitQuiet:      gathers(always((*update).admitQuiet)),
		flow.Admit:           gathers((*update).admit),
		flow.Check:           gathers((*update).check),
		flow.Spare:           gathers((*update).spare),
		flow.Protect:         gathers((*update).protect),
		flow.Drain:           (*update).drain,
		flow.Work:            (*update).work,
		flow.TakeFailure:     (*update).takeFailure,
		flow.Verify:          gathers((*update).verify),
		flow.BringNode:       gathers((*update).bringNode),
		flow.AwaitReady:      gathers((*update).awaitReady),
		flow.ReleaseNode:     gathers((*update).release),
		flow.Succeed:         ends((*update).succeed),
	}
}

// ends is a command after which nothing more is done.
func ends(do func(*update, context.Context) (ctrl.Result, error)) command {
	return func(u *update, ctx context.Context) (ctrl.Result, bool, error) {
		result, err := do(u, ctx)
		return result, false, err
	}
}

// gathers is a command that finds something out, or what the update waits for before it can.
func gathers(do func(*update, context.Context) (*wait, error)) command {
	return func(u *update, ctx context.Context) (ctrl.Result, bool, error) {
		w, err := do(u, ctx)
		if w != nil && err == nil {
			u.blockOn(w)
		}
		return ctrl.Result{}, true, err
	}
}

// always is what has nothing to wait for, and only what has no result.
func always(do func(*update, context.Context) error) func(*update, context.Context) (*wait, error) {
	return func(u *update, ctx context.Context) (*wait, error) { return nil, do(u, ctx) }
}

func only(do func(*update, context.Context) error) func(*update, context.Context) (ctrl.Result, error) {
	return func(u *update, ctx context.Context) (ctrl.Result, error) { return ctrl.Result{}, do(u, ctx) }
}

// run brings the update as far as it can be brought now: it asks flow what to do, and does it, until that ends.
func (u *update) run(ctx context.Context) (ctrl.Result, error) {
	for range mostCommands {
		c, reason := flow.Decide(u.state())
		u.reason = reason
		if u.leaves = u.queued && outside[c]; u.leaves {
			return ctrl.Result{}, nil
		}
		result, goesOn, err := commands[c](u, ctx)
		if err != nil {
			return ctrl.Result{}, u.stopped(ctx, err)
		}
		// The finalizer of what has just ended is taken off at once.
		if ended := finished(u.mu) && c != flow.RemoveFinalizer && c != flow.Stop && c != flow.Stay; !goesOn && !ended {
			return result, nil
		}
	}
	return ctrl.Result{}, fmt.Errorf("MachineUpdate %s/%s: the decision does not end: %+v", u.mu.Namespace, u.mu.Name, u.state())
}

// stopped returns the error that ends a reconciliation. Work on the node that may wait for a login gets it, in a session: that meets the error again.
func (u *update) stopped(ctx context.Context, err error) error {
	if u.leaves = u.queued && u.mayAwaitLogin(); u.leaves {
		return nil
	}
	u.stillLogIn(ctx)
	return err
}

// blockOn records what the update waits for.
func (u *update) blockOn(w *wait) {
	u.waitsFor, u.seen.Waits, u.seen.Broken = w, w.reason, w.fails
	u.replaced = u.replaced || w.fails == replacedNode
}
