package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Locker acquires the leases of the nodes of one workload cluster.
type Locker struct {
	// Client is the workload cluster's, and reads from its API server.
	Client client.Client
	// Namespace of the leases; medik8s' if empty. It is made when it is not there.
	Namespace string
	// Clock must be monotonic, as the real one is.
	Clock clock.Clock
	// Observer is one for all Lockers of the process.
	Observer *Observer
	// Instance is the process. No two have the same, and neither have two starts of one.
	Instance string
}

// Facts are what the management cluster says of a node. They are read from its API server, at the time when they are asked for.
type Facts struct {
	Machine *clusterv1.Machine
	Cluster *clusterv1.Cluster
}

// Request asks for the lease of a Machine's node.
type Request struct {
	// Facts reads them. It is asked at each look for holds, and names the node.
	Facts func(context.Context) (Facts, error)
	// NodeUID is the Node that the operation began with, empty when it begins.
	NodeUID types.UID
	// UnderWay reports that the operation has begun on the node: a lease that is the Machine's already keeps others off meanwhile.
	UnderWay bool
	// Absent reports that the node had no lease when it was looked for last. Then it is made without being looked for, and tells by itself whether the
	// clocks agree; if there is one by now, it is looked at like any other.
	Absent bool
	// Operation and Step say what is done, for people.
	Operation, Step string
	// Duration of the lease; WorkerDuration or ControlPlaneDuration if zero.
	Duration time.Duration
}

// Acquire acquires the lease of the Machine's node: it looks for holds, takes the lease, and looks again, because whoever has
// put a hold in between could not know of us. No connection to the node may be made before it has returned a Held.
//
// The lease of the same Machine is taken at once, whichever instance holds it: there is one leader, and the token fences the
// one before. When there is a hold, or the second look fails, it stays if the operation is under way, and is released otherwise.
//
// It returns a HeldError when the node is another's, a ClockError, ErrNoNode, ErrNodeGone, ErrNodeReplaced, or what went wrong.
func (l *Locker) Acquire(ctx context.Context, req Request) (*Held, error) {
	if req.Facts == nil || l.Instance == "" {
		return nil, errors.New("a lease needs facts, and an instance that holds it")
	}
	facts, err := req.Facts(ctx)
	if err != nil {
		return nil, err
	}
	survey, current, err := l.free(ctx, req, facts)
	if err != nil {
		return nil, err
	}
	h, err := l.take(ctx, req, facts.Machine, survey, current)
	if req.Absent && apierrors.IsAlreadyExists(err) {
		req.Absent = false
		return l.Acquire(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	if err := h.Check(ctx); err != nil {
		if req.UnderWay && isHolder(current, facts.Machine.UID) {
			return nil, err
		}
		return nil, h.abandon(ctx, err)
	}
	return h, nil
}

// free looks whether the node is free to be taken. It returns its lease as it is, nil when there is none.
func (l *Locker) free(ctx context.Context, req Request, facts Facts) (*Survey, *coordinationv1.Lease, error) {
	survey, err := l.Holds(ctx, facts, req.NodeUID)
	if err != nil {
		return nil, nil, err
	}
	var current *coordinationv1.Lease
	if !req.Absent {
		if current, err = l.read(ctx, survey.Node.Name); err != nil {
			return nil, nil, err
		}
	}
	holds := survey.Holds
	if hold := l.blocked(current, Holder(facts.Machine.UID)); hold != nil {
		holds = append([]Hold{*hold}, holds...)
	}
	if len(holds) > 0 {
		return nil, nil, l.withdraw(ctx, req, facts.Machine, current, l.held(survey.Node, holds, nil))
	}
	if req.Absent {
		return survey, nil, nil // the lease that is made tells
	}
	return survey, current, l.checkClock(ctx)
}

// withdraw releases a lease that is the Machine's though nothing is under way by it, and returns why it is not acquired again.
func (l *Locker) withdraw(ctx context.Context, req Request, machine *clusterv1.Machine, current *coordinationv1.Lease, why error) error {
	if req.UnderWay || !isHolder(current, machine.UID) {
		return why
	}
	if _, err := l.release(ctx, current); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The node lease of an earlier try stays until it lapses", "lease", client.ObjectKeyFromObject(current))
		return fmt.Errorf("%w; and the lease of an earlier try stays until it lapses: %s", why, err.Error())
	}
	return why
}

// isHolder reports whether a lease, or nil, is refit's for a Machine.
func isHolder(lease *coordinationv1.Lease, machine types.UID) bool {
	return lease != nil && lease.DeletionTimestamp.IsZero() && holderOf(lease) == Holder(machine)
}

// take writes that the lease is ours. Of those who try at the same time one succeeds.
func (l *Locker) take(ctx context.Context, req Request, machine *clusterv1.Machine, survey *Survey, current *coordinationv1.Lease) (*Held, error) {
	now := l.Clock.Now()
	lease := taken(current, l.key(survey.Node.Name), survey.Node, Holder(machine.UID))
	h := &Held{
		locker: l, facts: req.Facts, key: client.ObjectKeyFromObject(lease), machine: machine.UID, node: survey.Node.UID,
		cordoned: survey.Cordoned, duration: cmp.Or(req.Duration, durationFor(machine)), renewed: now, acquired: now, since: now,
		record: Record{Instance: l.Instance, Operation: req.Operation, Step: req.Step, After: lease.ResourceVersion},
	}
	if isHolder(current, machine.UID) && current.Spec.AcquireTime != nil { // as client-go's elections keep it
		lease.Spec.AcquireTime = current.Spec.AcquireTime.DeepCopy()
		h.since = current.Spec.AcquireTime.Add(Tolerance)
	}
	if isHolder(current, machine.UID) && current.Spec.RenewTime != nil {
		if by, ok := RecordOf(current); ok && by.Instance != l.Instance {
			h.before = current.Spec.RenewTime.Add(Tolerance)
		}
	}
	if err := h.record.write(lease); err != nil {
		return nil, err
	}
	renewed(lease, now, h.duration)
	if err := l.write(ctx, survey.Node, current == nil, lease); err != nil {
		return nil, err
	}
	h.lease = lease.UID
	l.Observer.Forget(lease.UID)
	token, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		return nil, h.abandon(ctx, fmt.Errorf("the resourceVersion %q can't fence: %w", lease.ResourceVersion, err))
	}
	h.record.Token, h.written = token, lease
	if err := h.agrees(ctx, req, now); err != nil {
		return nil, err
	}
	return h, nil
}

// agrees gives up a lease that was written without asking for the workload cluster's time before, if that shows that the clocks differ.
func (h *Held) agrees(ctx context.Context, req Request, began time.Time) error {
	if !req.Absent {
		return nil
	}
	if err := agree(h.written, began, h.locker.Clock.Now()); err != nil {
		return h.abandon(ctx, err)
	}
	return nil
}

func durationFor(machine *clusterv1.Machine) time.Duration {
	if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return ControlPlaneDuration
	}
	return WorkerDuration
}

// write creates or updates a lease. Who finds that somebody else was faster gets a HeldError.
func (l *Locker) write(ctx context.Context, node *corev1.Node, create bool, lease *coordinationv1.Lease) error {
	var err error
	if create {
		err = l.create(ctx, lease)
	} else {
		err = l.Client.Update(ctx, lease)
	}
	if err == nil {
		return nil
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || !create && apierrors.IsNotFound(err) {
		return l.raced(ctx, node, err)
	}
	return fmt.Errorf("write Lease %s: %w", l.key(node.Name), err)
}

// raced says who was faster.
func (l *Locker) raced(ctx context.Context, node *corev1.Node, cause error) error {
	hold := Hold{Kind: NodeLease, What: "node lease", Holder: "somebody", Release: "it was written at the same time; what is there now will be looked at"}
	if now, err := l.read(ctx, node.Name); err == nil && now != nil && holderOf(now) != "" {
		hold.Holder, hold.Since = holderOf(now), sinceOf(now)
	}
	return l.held(node, []Hold{hold}, cause)
}

// create creates a lease, and the namespace for it.
func (l *Locker) create(ctx context.Context, lease *coordinationv1.Lease, opts ...client.CreateOption) error {
	wanted := lease.DeepCopy()
	err := l.Client.Create(ctx, lease, opts...)
	if !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.namespace()}}
	if err := l.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Namespace %s: %w", namespace.Name, err)
	}
	*lease = *wanted
	return l.Client.Create(ctx, lease, opts...)
}

// read returns the lease of a node, or nil when there is none.
func (l *Locker) read(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	switch err := l.Client.Get(ctx, l.key(node), &lease); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Lease %s: %w", l.key(node), err)
	}
	return &lease, nil
}

func (l *Locker) namespace() string { return cmp.Or(l.Namespace, DefaultNamespace) }

func (l *Locker) key(node string) types.NamespacedName {
	return types.NamespacedName{Namespace: l.namespace(), Name: Name(node)}
}

// CheckFree returns a HeldError while somebody else than the Machine's refit has the lease of a node. machines are the UIDs that the Machine
// has, and had in management clusters from which it was moved.
func (l *Locker) CheckFree(ctx context.Context, node string, machines ...types.UID) error {
	lease, err := l.read(ctx, node)
	if err != nil || slices.ContainsFunc(machines, func(uid types.UID) bool { return isHolder(lease, uid) }) {
		return err
	}
	if hold := l.blocked(lease, ""); hold != nil {
		return l.held(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []Hold{*hold}, nil)
	}
	return nil
}

// blocked returns why a lease, or nil, may not be taken by holder; it returns nil when it may.
func (l *Locker) blocked(lease *coordinationv1.Lease, holder string) *Hold {
	if lease == nil {
		return nil
	}
	h := &Hold{
		Kind: NodeLease, What: "node lease", Holder: holderOf(lease), Since: sinceOf(lease), Reason: reasonOf(lease),
		Release: fmt.Sprintf("release it with: kubectl delete lease -n %s %s", lease.Namespace, lease.Name),
	}
	switch {
	case !lease.DeletionTimestamp.IsZero():
		h.Release = "it is being deleted"
	case h.Holder == "", h.Holder == holder:
		l.Observer.Forget(lease.UID)
		return nil
	case IsPerson(h.Holder):
	case lease.Spec.RenewTime == nil || durationOf(lease) <= 0:
		h.Release = "it has no renewTime or no duration, so that it does not lapse; " + h.Release
	default:
		if l.Observer.Unchanged(lease, l.Clock.Now()) >= Patience(lease) {
			return nil
		}
		h.Release = fmt.Sprintf("it lapses when it has not been renewed for %s while refit watches; %s", Patience(lease), h.Release)
	}
	return h
}

// How long until another try.
const (
	retryAtLeast = 15 * time.Second
	retryAtMost  = 60 * time.Second
)

// held makes an error out of holds. Each node has its own jitter at each time.
func (l *Locker) held(node *corev1.Node, holds []Hold, cause error) *HeldError {
	texts := make([]string, len(holds))
	for i, h := range holds {
		texts[i] = h.String()
	}
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, l.Instance, node.UID, l.Clock.Now().UnixNano())
	jitter := time.Duration(hash.Sum32()) % (retryAtMost - retryAtLeast + 1)
	return &HeldError{
		Holder: holds[0].Holder, Since: holds[0].Since, Message: strings.Join(texts, "; and "),
		RetryAfter: retryAtLeast + jitter, Holds: holds, cause: cause,
	}
}
