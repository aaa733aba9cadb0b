package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/protection"
)

// safePoint is how long a Machine that is to be deleted waits for the end of what runs on its node.
const safePoint = 10 * time.Minute

// releaseDeleted releases the node of a Machine whose deletion is asked for: at once, or when what runs on its node has ended.
func (u *update) releaseDeleted(ctx context.Context, machine *clusterv1.Machine, w *wait) (ctrl.Result, error) {
	if machine == nil {
		return u.await(ctx, w)
	}
	if u.mu.Status.ApplyingSince != nil && u.Clock.Since(machine.DeletionTimestamp.Time) < safePoint && u.runs(ctx, machine) {
		err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
			s.Message = "the Machine is being deleted; what runs on its node ends first"
		})
		return ctrl.Result{RequeueAfter: retryDrain}, err
	}
	// The workload cluster may be gone with the Machine: what is there must not keep the Machine.
	if u.mu.Status.Node != nil {
		if err := (&protection.Protector{Management: u.Client, Live: u.Live}).ReleaseMachine(ctx, u.subject()); err != nil {
			return ctrl.Result{}, err
		}
	}
	err := u.releaseNode(ctx, true)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Could not tidy up at the Node of a Machine that is being deleted", "reason", err.Error())
	}
	u.released = true
	err = u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Message = refitv1.PhaseWaiting, w.reason, w.message
		s.Node, s.Slot, s.Drain, s.Admission, s.ApplyingSince = nil, nil, nil, nil, nil
	})
	return ctrl.Result{RequeueAfter: retryDefault}, err
}

// runs reports whether work is under way on the node. A node that can't be asked does not keep its Machine.
func (u *update) runs(ctx context.Context, machine *clusterv1.Machine) bool {
	status, ok := u.lastOnNode(ctx, machine)
	return ok && underWay(status)
}

func underWay(status node.Status) bool { return status.State == node.Running && !status.Interrupted }

// lastOnNode asks the node about the last work there. It returns false if the node can't be asked.
func (u *update) lastOnNode(ctx context.Context, machine *clusterv1.Machine) (node.Status, bool) {
	a, w := u.access(ctx, machine)
	if w != nil {
		return node.Status{}, false
	}
	var status node.Status
	err := u.overConnection(ctx, a, func(client *remote.Client) (err error) {
		status, err = client.Status(ctx, node.StatusRequest{
			Protocol: node.Protocol, Digest: u.mu.Status.ObservedDigest, Machine: u.machineID(machine),
		})
		return err
	})
	if err == nil && status.AwaitsLogin { // else what it has done would be put back, since nobody follows it now
		_ = u.logIn(ctx, a, node.StatusRequest{
			Protocol: node.Protocol, Machine: u.machineID(machine), Digest: status.Digest, Token: status.Token, Confirm: true,
		})
	}
	return status, err == nil
}

// nodeError turns an error of reaching the node, or of the agent on it, into what the update waits for. Errors of the
// management cluster are returned.
func (u *update) nodeError(ctx context.Context, err error) (*wait, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err() // shutting down; whoever leads next goes on
	}
	if errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrUnrenewed) {
		return lost(err), nil
	}
	if w := u.met(err); w != nil {
		return w, nil
	}
	return nil, err
}

// reboots reports whether the node may be away because it was asked to reboot.
func (u *update) reboots() bool {
	s := &u.mu.Status
	if s.ApplyingSince == nil {
		return false
	}
	return s.RebootingSince != nil || s.Plan != nil && slices.ContainsFunc(s.Plan.Actions, func(a string) bool {
		return strings.HasPrefix(a, string(disruption.Reboot))
	})
}

// rebootPatience is how long a node may be away since it began to reboot. One that can't be logged in to after that waits for a login, puts
// everything back and reboots once more, all of which looks the same from here.
func (u *update) rebootPatience() time.Duration {
	if p := u.mu.Status.Plan; p == nil || !p.Guarded {
		return u.RebootTimeout
	}
	within := disruption.DefaultConfirmWithin
	if u.selected != nil {
		within = cmp.Or(u.selected.Rules.ConfirmWithin, within)
	}
	return 2*u.RebootTimeout + within
}

// awaitBoot waits for a node that reboots, for a while.
func (u *update) awaitBoot(ctx context.Context) (ctrl.Result, error) {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason = refitv1.PhaseApplying, ""
		s.Message = "the node reboots and does not answer yet"
		if at := u.now(); s.RebootingSince == nil {
			s.RebootingSince = &at
		}
	})
	return ctrl.Result{RequeueAfter: retryDrain}, err
}

// failFor ends the update for what it would have to wait for without end.
func (u *update) failFor(ctx context.Context) (ctrl.Result, error) {
	w := u.waitsFor
	if w.fails != "" {
		return u.fail(ctx, w.fails, w.message)
	}
	return u.fail(ctx, "NodeNotBack", fmt.Sprintf("the node was to reboot and is not back after %s; the last that was seen of it: step %q; and now: %s",
		u.rebootPatience(), u.mu.Status.Step, w.message))
}
