package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// How long one call of the agent waits for the end of the work.
const (
	applyWaitSeconds  = 5
	statusWaitSeconds = 10
)

// update is one reconciliation of a MachineUpdate.
type update struct {
	*Reconciler
	mu        *refitv1.MachineUpdate
	regarding *clusterv1.Machine
	// closed is what holds the update back if it has not started yet and disturbs the node. The node tells.
	closed *wait
}

// run brings the update as far as it can be brought now.
func (u *update) run(ctx context.Context) (ctrl.Result, error) {
	if err := u.begin(ctx); err != nil {
		return ctrl.Result{}, err
	}
	machine, w, err := u.machine(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if w != nil {
		return u.await(ctx, w)
	}
	if machine == nil {
		return ctrl.Result{}, nil
	}
	u.regarding = machine
	request, w, err := u.request(ctx, machine)
	if err != nil {
		return ctrl.Result{}, err
	}
	if w != nil {
		return u.await(ctx, w)
	}
	if w, err = u.ask(ctx, machine); err != nil {
		return ctrl.Result{}, err
	}
	if w != nil {
		return u.await(ctx, w)
	}
	access, w := u.access(ctx, machine)
	if w != nil {
		return u.await(ctx, w)
	}
	return u.onNode(ctx, access, request)
}

// begin resets the status when specs are asked for that it is not about, or when another try is.
func (u *update) begin(ctx context.Context) error {
	if u.mu.Status.ObservedDigest == u.mu.Spec.Digest && !retryAsked(u.mu) {
		return nil
	}
	now := metav1.NewTime(u.Clock.Now())
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		meta.RemoveStatusCondition(&s.Conditions, refitv1.PermittedCondition)
		*s = refitv1.MachineUpdateStatus{
			Phase: refitv1.PhasePending, Message: "the update begins", StartedAt: &now, Conditions: s.Conditions,
			ObservedDigest: u.mu.Spec.Digest, ObservedRetry: u.mu.Annotations[refitv1.RetryAnnotation],
			// What is known of the node does not depend on the specs.
			HostKey: s.HostKey, Address: s.Address,
			// Nor does when the Machine was updated before.
			Starts: s.Starts, LastSucceededAt: s.LastSucceededAt,
		}
	})
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
	resources, err := u.Registry.Desire(specs.desired)
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "the desired specs can't be brought to the node: " + err.Error()}, nil
	}
	baseline, err := u.readBaseline(ctx, machine)
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonSpecs, message: "what bootstrap laid down on the node can't be told: " + err.Error()}, nil
	}
	return &node.Request{
		Protocol:   node.Protocol,
		Machine:    node.MachineID{Namespace: machine.Namespace, Name: machine.Name, UID: string(machine.UID)},
		Digest:     u.mu.Spec.Digest,
		Resources:  resources,
		Baseline:   baseline,
		Rules:      u.Rules,
		OnConflict: u.OnConflict,
	}, nil, nil
}

func (u *update) access(ctx context.Context, machine *clusterv1.Machine) (*access, *wait) {
	na, err := u.findAccess(ctx, machine)
	var a *access
	if err == nil {
		record := func(ctx context.Context, key string) error {
			return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.HostKey = key })
		}
		a, err = resolveAccess(na, machine, u.secretReader(ctx, machine.Namespace), u.mu.Status.HostKey, record)
	}
	if err != nil {
		return nil, &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()}
	}
	return a, nil
}

// onNode does what is done over a connection to the node. One connection serves the whole update.
func (u *update) onNode(ctx context.Context, a *access, request *node.Request) (ctrl.Result, error) {
	// An update that waits is shown as waiting until the node has answered.
	if u.mu.Status.Phase != refitv1.PhaseWaiting {
		if err := u.enter(ctx, refitv1.PhaseStaging, "connect", "connecting to the node"); err != nil {
			return ctrl.Result{}, err
		}
	}
	conn, err := u.Dialer.Dial(ctx, a.target)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // the work is done, or goes on without the connection
	if err := u.enter(ctx, refitv1.PhaseStaging, "plan", "the node compares itself with what is desired"); err != nil {
		return ctrl.Result{}, err
	}
	client, err := node.NewClient(conn, node.ClientOptions{Agents: u.Agents, Dir: a.spec.AgentDirectory, Sudo: a.spec.SSH.Sudo})
	if err != nil {
		return u.await(ctx, &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()})
	}
	plan, err := client.Plan(ctx, *request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if len(plan.Blocked) > 0 {
		return u.await(ctx, &wait{reason: refitv1.ReasonBlocked, message: "the node can't be updated in place: " + problems(plan.Blocked)})
	}
	w, err := u.admit(ctx, client, request, plan, func(admission refitv1.Admission) error {
		return u.claim(ctx, a, request, plan, admission)
	})
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if w != nil {
		return u.await(ctx, w)
	}
	u.closed = nil
	return u.work(ctx, client, request)
}

// work has the node do what it has planned, and sees that it is done.
func (u *update) work(ctx context.Context, client *node.Client, request *node.Request) (ctrl.Result, error) {
	status, err := u.apply(ctx, client, request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if status.State == node.Failed {
		return u.fail(ctx, "NodeFailed", "the node reports: "+status.Message)
	}
	return u.verify(ctx, client, request, status)
}

// apply has the node do the work, or finds it under way, and follows it to its end.
func (u *update) apply(ctx context.Context, client *node.Client, request *node.Request) (node.Status, error) {
	status, err := client.Apply(ctx, *request)
	for err == nil && status.State == node.Running && status.Digest == request.Digest {
		if err = u.follow(ctx, status); err != nil {
			return status, err
		}
		if status.Interrupted {
			// The work has lost who did it. Asked for again, it goes on at the first step that is not done.
			status, err = client.Apply(ctx, *request)
			continue
		}
		status, err = client.Status(ctx, node.StatusRequest{
			Protocol: node.Protocol, Machine: request.Machine, Digest: request.Digest, WaitSeconds: statusWaitSeconds,
		})
	}
	if err == nil {
		err = misplaced(status, request.Digest)
	}
	return status, err
}

// claim begins an attempt: from here on, whoever began one before is stale.
func (u *update) claim(ctx context.Context, a *access, request *node.Request, plan node.Plan, admission refitv1.Admission) error {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		admitted(s, admission)
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseApplying, "", "apply", describe(plan)
		s.Attempts++
		s.Instance = u.Instance
		s.Address = a.target.Addresses[0].String()
	})
	if err != nil {
		return err
	}
	// The version of the object that says that this attempt has begun only grows, and two who believe to lead can't both
	// have written it last.
	if request.Token, err = strconv.ParseInt(u.mu.ResourceVersion, 10, 64); err != nil {
		return fmt.Errorf("the resourceVersion %q can't fence: %w", u.mu.ResourceVersion, err)
	}
	request.WaitSeconds = applyWaitSeconds
	return nil
}

// misplaced returns an error when a status is not about the end of the work for the digest.
func misplaced(status node.Status, digest string) error {
	switch {
	case status.State == node.Idle:
		return &node.AgentError{Reason: node.ReasonInternal, Message: "the node has lost track of the work"}
	case status.Digest != digest:
		return &node.AgentError{Reason: node.ReasonBusy, Message: "the node works on other specs; waiting for that to end"}
	default:
		return nil
	}
}

// follow shows how far the node has come.
func (u *update) follow(ctx context.Context, status node.Status) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step = status.Step
		s.Message = fmt.Sprintf("the node has done %d of %d steps", status.Done, status.Total)
	})
}

// verify asks the node to compare itself with what is desired once more. Only when nothing is left to do the update is
// done.
func (u *update) verify(ctx context.Context, client *node.Client, request *node.Request, status node.Status) (ctrl.Result, error) {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseVerifying, "", "compare", "comparing the node with what is desired"
		s.Changes, s.Actions = nil, nil
		for _, c := range status.Changes {
			s.Changes = append(s.Changes, refitv1.FileChange{Path: c.Path, Operation: string(c.Operation), Conflict: c.Conflict})
		}
		for _, a := range status.Actions {
			s.Actions = append(s.Actions, a.String())
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := client.Plan(ctx, *request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if len(plan.Blocked) > 0 || len(plan.Changes) > 0 {
		return u.fail(ctx, "NotVerified", "the node does not show what was applied: "+describe(plan))
	}
	notes := status.Notes
	for _, d := range plan.Drift {
		if slices.ContainsFunc(status.Changes, func(c node.FileChange) bool { return c.Path == d.Path }) {
			return u.fail(ctx, "NotVerified", fmt.Sprintf("%s was written and is another again (%s); something on the node changes it", d.Path, strings.Join(d.What, ", ")))
		}
		notes = append(notes, fmt.Sprintf("%s was changed on the node (%s) and not in the specs; it was left as it is", d.Path, strings.Join(d.What, ", ")))
	}
	return u.succeed(ctx, fmt.Sprintf("the node shows what is desired: %d files changed, actions: %s", len(status.Changes), actionsOf(u.mu.Status.Actions)), notes)
}

// nodeError turns an error of reaching the node, or of the agent on it, into what the update waits for. Errors of the
// management cluster are returned.
func (u *update) nodeError(ctx context.Context, err error) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // shutting down; whoever leads next goes on
	}
	if w := waitFor(err); w != nil {
		return u.await(ctx, w)
	}
	return ctrl.Result{}, err
}
