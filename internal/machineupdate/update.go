package machineupdate

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// update is one reconciliation of a MachineUpdate.
type update struct {
	*Reconciler
	mu        *refitv1.MachineUpdate
	regarding *clusterv1.Machine
	// waitedFor is the reason for which the update has waited until now; empty if it has not.
	waitedFor string
	// selected is what holds for the Machine, by the NodeDisruptionPolicies. It is there before the node is connected to.
	selected *nodedisruption.Selected
	// object is what the Node is to be. It is there before the node is connected to.
	object *nodeObject
	// release is where another version of Kubernetes comes from. It is there before the node is connected to.
	release release
	// closed is what holds the update back if it has not started yet and disturbs the node. The node tells.
	closed   *wait
	occupied occupancy
	// failedRun is what the node reports of a run that has failed.
	failedRun *node.Status
	// replaced says that the Node that the work began with is gone.
	replaced bool
	// firstUse says that the node's host key is trusted on first use.
	firstUse bool
	// left is what has drifted on the node and was left as it is.
	left []node.Drift
}

// run brings the update as far as it can be brought now.
func (u *update) run(ctx context.Context) (ctrl.Result, error) {
	defer u.leave()
	machine, w, err := u.machine(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	u.regarding = machine
	if abandonAsked(u.mu) {
		return ctrl.Result{}, u.abandon(ctx)
	}
	if w == nil && machine != nil && unasked(u.mu, machine) {
		return u.withdraw(ctx)
	}
	if err := u.begin(ctx); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case w != nil && w.reason == refitv1.ReasonDeleting:
		return u.letGo(ctx, machine, w)
	case w != nil:
		return u.await(ctx, w)
	case machine == nil:
		return ctrl.Result{}, nil
	}
	return u.proceed(ctx, machine)
}

// proceed goes to the node of a Machine that is there, when all that comes before lets it.
func (u *update) proceed(ctx context.Context, machine *clusterv1.Machine) (ctrl.Result, error) {
	if withdrawn, err := u.withdrawRepair(ctx, machine); withdrawn || err != nil {
		return ctrl.Result{}, err
	}
	request, w, err := u.ready(ctx, machine)
	if err != nil {
		return ctrl.Result{}, err
	}
	var a *access
	if w == nil {
		a, w = u.access(ctx, machine)
	}
	if w == nil {
		w, err = u.occupy(ctx, machine)
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case w != nil:
		return u.await(ctx, w)
	}
	request.Login = a.login()
	return u.onNode(ctx, a, request)
}

// ready returns what the node is asked for, or what the update waits for before the node matters.
func (u *update) ready(ctx context.Context, machine *clusterv1.Machine) (*node.Request, *wait, error) {
	request, w, err := u.request(ctx, machine)
	if err != nil || w != nil {
		return nil, w, err
	}
	w, err = u.ask(ctx, machine)
	return request, w, err
}

// begin resets the status when specs are asked for that it is not about, or when another try is.
func (u *update) begin(ctx context.Context) error {
	if u.mu.Status.ObservedDigest == u.mu.Spec.Digest && !retryAsked(u.mu) {
		return nil
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		repair := s.Repair
		if s.ObservedDigest != u.mu.Spec.Digest {
			repair = nil
		}
		u.anew(s, "the update begins")
		s.Repair = repair
	})
}

// anew makes the status that of an update that begins.
func (u *update) anew(s *refitv1.MachineUpdateStatus, message string) {
	now := metav1.NewTime(u.Clock.Now())
	meta.RemoveStatusCondition(&s.Conditions, refitv1.PermittedCondition)
	*s = refitv1.MachineUpdateStatus{
		Phase: refitv1.PhasePending, Message: message, StartedAt: &now, Conditions: s.Conditions,
		ObservedDigest: u.mu.Spec.Digest, ObservedRetry: u.mu.Annotations[refitv1.RetryAnnotation],
		// What is known of the node does not depend on the specs.
		HostKey: s.HostKey, Address: s.Address, Drift: s.Drift,
		// Nor does when the Machine was updated before, and what refit has put on the node or has begun there.
		Starts: s.Starts, LastSucceededAt: s.LastSucceededAt, AppliedDigest: appliedBefore(s),
		Slot: s.Slot, Node: s.Node, Drain: drainedAnew(s.Drain, now), ApplyingSince: s.ApplyingSince, RebootingSince: s.RebootingSince,
		Token: s.Token, FailedToken: s.FailedToken, ObservedAbandon: s.ObservedAbandon,
	}
}

// drainedAnew is a drain for other specs, or for another try: pods may have come back.
func drainedAnew(d *refitv1.DrainStatus, now metav1.Time) *refitv1.DrainStatus {
	if d == nil {
		return nil
	}
	return &refitv1.DrainStatus{StartedAt: now, Cordoned: d.Cordoned}
}

// request is what the node is asked for.
func (u *update) request(ctx context.Context, machine *clusterv1.Machine) (*node.Request, *wait, error) {
	specs, err := u.readSpecs(ctx, machine)
	if err != nil {
		return nil, nil, err
	}
	if specs.digest != u.mu.Spec.Digest {
		return nil, &wait{
			reason: refitv1.ReasonSpecs, retry: 2 * time.Second,
			message: "the Machine, its infrastructure machine or its bootstrap config has changed since Cluster API asked for this update; waiting for Cluster API to ask for the new specs",
		}, nil
	}
	if w, err := u.selectRules(ctx, machine); w != nil || err != nil {
		return nil, w, err
	}
	resources, err := u.selected.Updaters.Desire(specs.desired)
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "the desired specs can't be brought to the node: " + err.Error()}, nil
	}
	made, err := u.readBaseline(ctx, machine)
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "what bootstrap laid down on the node can't be told: " + err.Error()}, nil
	}
	u.release = u.findRelease(ctx, machine)
	u.object = u.nodeObject(specs.desired, made.registration)
	return &node.Request{
		Protocol:   node.Protocol,
		Machine:    machineID(machine),
		Digest:     u.mu.Spec.Digest,
		Resources:  resources,
		Baseline:   made.baseline,
		Rules:      u.selected.Rules,
		Source:     u.release.source,
		OnConflict: u.OnConflict,
		Repair:     u.mu.Status.Repair != nil,
	}, nil, nil
}

func machineID(machine *clusterv1.Machine) node.MachineID {
	return node.MachineID{Namespace: machine.Namespace, Name: machine.Name, UID: string(machine.UID)}
}

func (u *update) access(ctx context.Context, machine *clusterv1.Machine) (*access, *wait) {
	na, err := u.findAccess(ctx, machine)
	var a *access
	recorded := ""
	if err == nil {
		if u.firstUse = na.Spec.SSH.HostKeys.Policy == refitv1.HostKeyTrustOnFirstUse; u.firstUse {
			recorded, err = u.knownHost(ctx, machine)
		}
	}
	if errors.Is(err, errForeignHost) {
		return nil, &wait{reason: refitv1.ReasonHostKey, message: err.Error()}
	}
	if err == nil {
		record := func(ctx context.Context, key string) error { return u.recordHost(ctx, machine, key) }
		a, err = resolveAccess(na, machine, u.secretReader(ctx, machine.Namespace), recorded, record)
	}
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()}
	}
	return a, nil
}

// started says whether the update is past the point where a policy can hold it back.
func (u *update) started() bool { return u.mu.Status.Attempts > 0 || u.mu.Status.Drain != nil }

// underWay says whether the node is being disturbed, so that others stay off it while the update waits.
func (u *update) underWay() bool {
	return u.started() && u.mu.Status.Admission != nil
}
