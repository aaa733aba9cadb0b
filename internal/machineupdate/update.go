package machineupdate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/baseline"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/nodeobject"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/tracing"
)

// update is one reconciliation of a MachineUpdate.
type update struct {
	*Reconciler
	mu        *refitv1.MachineUpdate
	regarding *clusterv1.Machine
	// spec is the Machine's, as JSON.
	spec any
	// read are the Machine and its Cluster, as they were read at readAt. Nil: they were not, or were asked for since.
	read   *lease.Facts
	readAt time.Time
	// pause is the condition Paused. Nil: it is not known whether anything is paused.
	pause *metav1.Condition
	// marks are what refit marks, as it was read or written last.
	marks protection.Known
	// checked reports that it was asked before whether a step may start. proves reports that the next write proves that Machine and Node are as they were
	// when the lease was taken, so that they are not read.
	checked, proves bool
	// unleased reports that the sweep has found no lease of the node, and that this process has made none since.
	unleased bool
	// shown is the Node, when labels and taints were brought to it just now.
	shown *corev1.Node
	// atOnce reports that it waits since it was asked for. Cluster API tells why, in the Machine's conditions, so that there is no Event for each of a fleet.
	atOnce bool
	// waitedFor is the reason for which the update has waited until now; empty if it has not.
	waitedFor string
	// planned is the revision of the policies by which a plan was made that was told. It is believed when that is written.
	planned *string
	// selected is what holds for the Machine, by the NodeDisruptionPolicies. It is there before the node is connected to.
	selected *nodedisruption.Selected
	// object is what the Node is to be. It is there before the node is connected to.
	object *nodeobject.Object
	// origin is where another version of Kubernetes comes from. It is there before the node is connected to.
	origin origin
	// closed is what holds the update back if it has not started yet and disturbs the node. The node tells.
	closed *wait
	// opened is what lets it start, if nothing holds it back.
	opened changemanagement.Decision
	// runs is the version of the kubelet that the Node reports.
	runs  string
	login login
	// knocked reports that the node has answered a knock just now, and circumstances are what has had a say so far.
	knocked       bool
	circumstances circumstances
	occupied      occupancy
	// saidLast is what the node has said of its last work before it was released. Nil: nothing.
	saidLast *node.Status
	// noRepair is why a repair is no longer to be made; empty if it is.
	noRepair string
	// failedRun is what the node reports of a run that has failed.
	failedRun *node.Status
	// replaced reports that the Node that the work began with is gone.
	replaced bool
	// firstUse reports that the node's host key is trusted on first use.
	firstUse bool
	// written is the status as it was written last, if more was told since, and writtenAt when that was, or when the MachineUpdate was read.
	written   *refitv1.MachineUpdateStatus
	writtenAt time.Time
	// seen is what this reconciliation has found out, and waitsFor what stands in its way.
	seen     flow.Seen
	waitsFor *wait
	// reason is that of the command that is being done, and unreleased why the node could not be released.
	reason     flow.Reason
	unreleased error
	// request is what the node is asked for, over conn.
	request *node.Request
	conn    remote.Conn
	agent   *remote.Client
	// plan is what the node says that is to be done, last how its last work stands, and ran how the work has ended that was followed.
	plan      node.Plan
	last, ran node.Status
	// notes are for people, when the update has succeeded.
	notes []string
	// queued reports that a worker of the queue runs the update, and leaves that it goes on in a session.
	queued, leaves bool
	// overtaken reports that another server has written since the MachineUpdate was read.
	overtaken bool
	// looksOnly reports that nothing is done on the node, so that what is found out is true whoever writes in between.
	looksOnly bool
	// registered are the updaters that are called before the node does its part.
	registered []*registered.Remote
	// left is what has drifted on the node and was left as it is.
	left []node.Drift
	// spans are what has ended, and is exported when the status is written that comes after it.
	spans []tracing.Span
}

// findMachine finds the Machine, and whether it may be worked on.
func (u *update) findMachine(ctx context.Context) (*wait, error) {
	machine, w, err := u.machine(ctx)
	if u.regarding = machine; err != nil {
		return nil, err
	}
	u.waitsFor = w
	u.seen.Machine, u.seen.Asked = whereabouts(machine, w), machine != nil && !unasked(u.mu, machine)
	switch {
	case u.seen.Machine == flow.Leaving:
		u.seen.Late = u.late(machine)
	case u.seen.Machine == flow.Present && !u.seen.Asked:
		u.waitsFor = withdrawn()
	}
	return nil, nil
}

// readRequest reads what the node is asked for.
func (u *update) readRequest(ctx context.Context) (w *wait, err error) {
	u.request, w, err = u.makeRequest(ctx, u.regarding)
	if w == nil && err == nil {
		w = u.findRegistered(ctx)
	}
	u.seen.Specs, u.seen.Due = w == nil, u.isDue()
	return w, err
}

// findLogin finds how to log in to the node.
func (u *update) findLogin(ctx context.Context) (*wait, error) {
	a, w, err := u.access(ctx, u.regarding)
	if w == nil && err == nil {
		u.seen.Access, u.login.access, u.request.Login = true, a, a.Login()
	}
	return w, err
}

// begin resets the status when specs are asked for that it is not about, or when another try is.
func (u *update) begin(ctx context.Context) error {
	if u.mu.Status.ObservedDigest == u.mu.Spec.Digest && !retryAsked(u.mu) {
		return nil
	}
	u.silent.Delete(u.subject().ObjectKey)
	// Since when it is wanted is found out by nobody again, and while the node is asked the status is not to be about the specs before.
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		repair := s.Repair
		if s.ObservedDigest != u.mu.Spec.Digest {
			repair = nil
		}
		u.beginStatus(s, "the update begins")
		s.Repair = repair
	})
}

// beginStatus makes the status that of an update that begins.
func (u *update) beginStatus(s *refitv1.MachineUpdateStatus, message string) {
	now := metav1.NewTime(u.Clock.Now())
	wanted, soaking := changemanagement.Wanted(s), s.SoakingSince
	if wanted == nil {
		wanted = &now
	}
	if s.ApplyingSince == nil {
		soaking = nil
	}
	meta.RemoveStatusCondition(&s.Conditions, refitv1.PermittedCondition)
	*s = refitv1.MachineUpdateStatus{
		Phase: refitv1.PhasePending, Message: message, StartedAt: &now, Conditions: s.Conditions,
		ObservedDigest: u.mu.Spec.Digest, ObservedRetry: u.mu.RetryRequest(),
		// What is known of the node does not depend on the specs.
		HostKey: s.HostKey, Address: s.Address, Drift: s.Drift,
		// Nor does when the Machine was updated before, and what refit has put on the node or has begun there.
		Starts: s.Starts, LastSucceededAt: s.LastSucceededAt, AppliedDigest: appliedBefore(s), NodeRecords: s.NodeRecords,
		Slot: s.Slot, Node: s.Node, Drain: restartedDrain(s.Drain, now), ApplyingSince: s.ApplyingSince, RebootingSince: s.RebootingSince,
		SoakingSince: soaking, // what the node has is still not known to work
		Token:        s.Token, FailedToken: s.FailedToken, ObservedAbandon: s.ObservedAbandon, RecordRevision: s.RecordRevision,
		Rollback: s.Rollback, WantedSince: wanted, Updaters: unfinished(s.Updaters),
	}
}

// restartedDrain is a drain for other specs, or for another try: pods may have come back.
func restartedDrain(d *refitv1.DrainStatus, now metav1.Time) *refitv1.DrainStatus {
	if d == nil {
		return nil
	}
	return &refitv1.DrainStatus{StartedAt: now, Cordoned: d.Cordoned}
}

// makeRequest returns what the node is asked for.
func (u *update) makeRequest(ctx context.Context, machine *clusterv1.Machine) (*node.Request, *wait, error) {
	specs, err := u.readSpecs(ctx, machine)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "the desired specs can't be read, so that the node is not touched: " + err.Error()}, nil
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
	made, err := baseline.Read(ctx, u.Live, machine)
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "what bootstrap laid down on the node can't be told: " + err.Error()}, nil
	}
	u.origin = u.findOrigin(ctx, machine)
	u.object = u.nodeObject(specs.desired, made.Registration)
	return &node.Request{
		Protocol:   node.Protocol,
		Machine:    u.machineID(machine),
		Digest:     u.mu.Spec.Digest,
		Resources:  resources,
		Baseline:   made.Baseline,
		Rules:      u.selected.Rules,
		Source:     u.origin.source,
		OnConflict: u.OnConflict,
		Repair:     u.mu.Status.Repair != nil,
	}, nil, nil
}

func (u *update) machineID(machine *clusterv1.Machine) node.MachineID {
	id := node.MachineID{Namespace: machine.Namespace, Name: machine.Name, UID: string(machine.UID)}
	for _, uid := range u.mu.FormerMachineUIDs(machine.UID) {
		id.Former = append(id.Former, string(uid))
	}
	return id
}

// started reports whether the update is past the point where a policy can hold it back.
func (u *update) started() bool {
	s := &u.mu.Status
	r := flow.Record{Attempted: s.Attempts > 0, Draining: s.Drain != nil, Admission: admittedEffect(s.Admission), Updaters: updatersOf(s)}
	return r.Begun()
}

// underWay reports whether the node is being disturbed, so that others stay off it while the update waits.
func (u *update) underWay() bool {
	return u.started() && u.mu.Status.Admission != nil || len(u.mu.Status.AtWork()) > 0
}
