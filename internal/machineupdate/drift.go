package machineupdate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// driftTimeout bounds one comparison, the way to the node and the bringing of the agent included.
const driftTimeout = 2 * time.Minute

// SkipsDrift implements drift.Nodes.
func (r *Reconciler) SkipsDrift(ctx context.Context, mu *refitv1.MachineUpdate) bool {
	var machine clusterv1.Machine
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine); err != nil {
		return false
	}
	off, err := r.offNode(ctx, &machine, mu)
	return err == nil && off
}

// offNode reports by what caches say whether refit does not even look at the node of a Machine: it is paused, or goes, or a policy keeps refit off.
func (r *Reconciler) offNode(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (bool, error) {
	var cluster clusterv1.Cluster
	if err := r.Client.Get(ctx, clusterOf(machine), &cluster); err != nil {
		return false, err
	}
	if !machine.DeletionTimestamp.IsZero() || annotations.IsPaused(&cluster, machine) || annotations.HasPaused(mu) {
		return true, nil
	}
	w, err := (&update{Reconciler: r, mu: mu}).keptOff(ctx, machine)
	return w != nil, err
}

// CheckDrift implements drift.Nodes. It begins a repair if there is to be one.
func (r *Reconciler) CheckDrift(ctx context.Context, mu *refitv1.MachineUpdate) (*drift.Finding, error) {
	u := &update{Reconciler: r, mu: mu, looksOnly: true}
	machine, w, err := u.machine(ctx)
	if err != nil || machine == nil && w == nil {
		return nil, err
	}
	if u.regarding = machine; w == nil {
		w, err = u.keptOff(ctx, machine)
	}
	var f drift.Finding
	switch {
	case err != nil:
		return nil, err
	case w != nil && !drift.Asked(mu):
		return nil, nil // nobody waits for an answer, and what was found last stays true
	case w != nil:
		f = drift.Unknown(w.reason, "the node was not compared: "+w.message)
	default:
		if f, err = u.compare(ctx, machine); err != nil {
			return nil, err
		}
	}
	return &f, u.found(ctx, &f)
}

// found records what a comparison has found, and begins a repair if there is to be one.
func (u *update) found(ctx context.Context, f *drift.Finding) error {
	news := f.Drifted() && !drift.Known(u.mu)
	asked := u.mu.DriftRequest()
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		if f.Repair {
			u.repairBegins(s, f.Message)
		}
		f.Note(s, u.now(), u.mu.Generation)
		s.Drift.ObservedCheck = asked
	})
	if err != nil {
		return err
	}
	u.tellDrift(news, f)
	return nil
}

func (u *update) tellDrift(news bool, f *drift.Finding) {
	if news {
		u.event(corev1.EventTypeWarning, "NodeDrifted", "CheckDrift", f.Message)
	}
}

// compare has the node compared, and returns what that means and what becomes of it.
func (u *update) compare(ctx context.Context, machine *clusterv1.Machine) (drift.Finding, error) {
	report, w, err := u.report(ctx, machine)
	switch {
	case err != nil:
		return drift.Finding{}, err
	case w != nil:
		return drift.Unknown(w.reason, w.message), nil
	}
	f := drift.Judge(report, u.mu.Status.ObservedDigest)
	if f.Drifted() {
		f.Repair, err = u.answer(ctx, machine, &f)
	}
	return f, err
}

// keptOff returns what keeps refit from connecting to the node at all: a policy that is closed and holds back everything.
func (u *update) keptOff(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	d, err := u.Gate.Ask(ctx, machine, u.mu)
	if err != nil || d.Within() || !d.KeepsOff() {
		return nil, err
	}
	return &wait{reason: refitv1.ReasonWindow, message: d.Message}, nil
}

// report has the node compare itself with its record.
func (u *update) report(ctx context.Context, machine *clusterv1.Machine) (*node.DriftReport, *wait, error) {
	a, w, err := u.access(ctx, machine)
	if w != nil || err != nil {
		return nil, w, err
	}
	bounded, cancel := context.WithTimeout(ctx, driftTimeout)
	defer cancel()
	report, err := u.askForDrift(bounded, a, machine)
	if err == nil {
		return report, nil, nil
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // shutting down
	}
	if w = u.met(err); w == nil && bounded.Err() != nil {
		w = &wait{reason: refitv1.ReasonUnreachable, message: fmt.Sprintf("the node has not answered within %s", driftTimeout)}
	}
	if w == nil {
		return nil, nil, err
	}
	return nil, w, nil
}

func (u *update) askForDrift(ctx context.Context, a *nodeaccess.Access, machine *clusterv1.Machine) (*node.DriftReport, error) {
	var report node.DriftReport
	err := u.overConnection(ctx, a, func(client *remote.Client) (err error) {
		report, err = client.Drift(ctx, node.DriftRequest{Machine: u.machineID(machine)})
		return err
	})
	return &report, err
}

// noteVerified writes what the node has shown at the end of an update, which is a comparison of its own.
func (u *update) noteVerified(s *refitv1.MachineUpdateStatus) *drift.Finding {
	f := drift.Judge(&node.DriftReport{Recorded: true, Digest: s.ObservedDigest, Drift: u.left}, s.ObservedDigest)
	repairs := int32(0)
	if s.Repair != nil {
		repairs = 1
		if s.Drift != nil {
			repairs += s.Drift.Repairs
		}
		if f.Drifted() {
			repairs = maxRepairs
			f.Message += "; the repair could not bring it back: do so on the node"
		}
	}
	f.Note(s, u.now(), u.mu.Generation)
	s.Drift.Repairs, s.Repair = repairs, nil
	return &f
}
