package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ErrNotCordoned is returned for a Node that pods can still come to: what is evicted from it may come back.
var ErrNotCordoned = errors.New("the Node is not cordoned")

// Drainer has pods leave nodes of one workload cluster.
type Drainer struct {
	// Client is the workload cluster's, and reads from its API server.
	Client client.Client
	// Clientset is the workload cluster's, too.
	Clientset kubernetes.Interface
	// Rules reads MachineDrainRules and Clusters in the management cluster.
	Rules client.Reader
	Clock clock.PassiveClock
	// Former are UIDs that the Machine had in management clusters from which it was moved. A cordon for one of them is its own.
	Former []types.UID
}

// Request asks for one round of a drain.
type Request struct {
	// Machine whose node is drained.
	Machine *clusterv1.Machine
	Node    NodeRef
	// Since is when the drain began. The Machine's nodeDrainTimeoutSeconds count from here.
	Since time.Time
	// DetachingSince is when a round first found that only volumes were left; zero if none has. The Machine's
	// nodeVolumeDetachTimeoutSeconds count from here.
	DetachingSince time.Time
	// Self is the pod that refit runs in; zero when that is in no pod of this workload cluster. It is not evicted.
	Self types.NamespacedName
}

// Progress is how a drain stands after a round. It is the same as long as nothing changes.
type Progress struct {
	// Done reports that nothing is left to wait for.
	Done bool
	// Skipped says why a drain that is done was not made, or not to its end.
	Skipped string
	// Left counts the pods that are still to leave.
	Left int
	// Volumes counts the volumes that are still attached when no pod is to leave any more.
	Volumes int
	// Blocked says which pods can't leave now and why: ten at most, in order, each of 1024 characters at most.
	Blocked []string
	// TimedOut reports that the Machine's nodeDrainTimeoutSeconds are over and pods or volumes are left. Nothing more is evicted.
	TimedOut bool
	// HandOver reports that the drain goes on when another instance of refit does it, because this one's pod is to leave.
	HandOver bool
	// Message says all that for people.
	Message string
}

// Pass does one round of a drain: it chooses the pods that are to leave, asks for the evictions of those whose turn it is, and
// says what is left. It waits for no pod; call it again until Done or TimedOut.
//
// It returns lease.ErrNodeGone, lease.ErrNodeReplaced, ErrNotCordoned, or what could not be read or asked.
func (d *Drainer) Pass(ctx context.Context, req Request) (Progress, error) {
	if req.Machine == nil || req.Since.IsZero() {
		return Progress{}, fmt.Errorf("drain Node %s: the Machine, or when the drain began, is missing", req.Node.Name)
	}
	progress, err := d.pass(ctx, req)
	if err != nil {
		return Progress{}, fmt.Errorf("drain Node %s: %w", req.Node.Name, err)
	}
	return progress, nil
}

func (d *Drainer) pass(ctx context.Context, req Request) (Progress, error) {
	node, err := d.node(ctx, req.Node)
	switch {
	case err != nil:
		return Progress{}, err
	case !node.Spec.Unschedulable:
		return Progress{}, ErrNotCordoned
	}
	if _, ok := req.Machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; ok {
		return skipped("the node is not drained: its Machine has the annotation " + clusterv1.ExcludeNodeDrainingAnnotation), nil
	}
	pods, err := d.pods(ctx, req.Machine, node)
	if err != nil {
		return Progress{}, err
	}
	if len(pods) == 0 {
		return d.detach(ctx, req, node)
	}
	others, err := d.elsewhere(ctx, node)
	if err != nil {
		return Progress{}, err
	}
	_, over := overdue(req.Machine, d.Clock.Since(req.Since))
	switch {
	case others == none:
		return skipped("the node is not drained: its pods have nowhere to go, since the cluster has no other node"), nil
	case others == notReady && !over && ready(node) == corev1.ConditionTrue: // of one that is not Ready, pods lose nothing
		return Progress{Left: len(pods), Message: fmt.Sprintf("%d pods left, which stay for now: no other node of the cluster is Ready and schedulable; "+
			"to go on without a drain: kubectl annotate machine -n %s %s %s=true", len(pods), req.Machine.Namespace, req.Machine.Name, clusterv1.ExcludeNodeDrainingAnnotation)}, nil
	}
	return d.evictInTurn(ctx, req, node, pods)
}

// evictInTurn asks for the evictions of the pods whose turn it is, unless refit must not, and says what is left.
func (d *Drainer) evictInTurn(ctx context.Context, req Request, node *corev1.Node, pods []leaver) (Progress, error) {
	r := newRound(pods)
	timeout, over := overdue(req.Machine, d.Clock.Since(req.Since))
	at := r.find(req.Self)
	if !over && at != nil {
		at.blocked = ownPod
		p := r.progress()
		p.HandOver = true
		p.Message = fmt.Sprintf(
			"refit's own pod %s is on the node, so another replica of refit must lead before pods leave; "+
				"without one, run one on another node, or have the pod stay with the label %s=skip; %s",
			req.Self, clusterv1.PodDrainLabel, p.Message)
		return p, nil
	}
	// When the time is over a dry run still tells what blocks.
	if err := d.evict(ctx, r.turn(req.Self), deleteOptions(node, over)); err != nil {
		return Progress{}, err
	}
	if at != nil {
		at.blocked = ownPod
	}
	p := r.progress()
	if over {
		p.TimedOut = true
		p.Message = fmt.Sprintf("the Machine's nodeDrainTimeoutSeconds (%d) are over, and no pod is forced to leave; %s", int64(timeout/time.Second), p.Message)
	}
	return p, nil
}

// ownPod is why refit's own pod is not evicted.
const ownPod = "it is refit's own, and is evicted when another replica of refit leads"

func skipped(why string) Progress { return Progress{Done: true, Skipped: why, Message: why} }

// overdue returns the timeout of the drain, and whether it is over. Without a timeout it never is.
func overdue(machine *clusterv1.Machine, elapsed time.Duration) (time.Duration, bool) {
	return overdueAfter(machine.Spec.Deletion.NodeDrainTimeoutSeconds, elapsed)
}

func overdueAfter(seconds *int32, elapsed time.Duration) (time.Duration, bool) {
	if seconds == nil || *seconds <= 0 {
		return 0, false
	}
	timeout := time.Duration(*seconds) * time.Second
	return timeout, elapsed >= timeout
}

// others are the nodes that pods could go to.
type others int

const (
	none     others = iota // there never is one, as far as can be told
	notReady               // there is one, but not now
	some
)

// elsewhere returns which other nodes pods could go to. Taints are not looked at, since that is between each pod and the scheduler.
func (d *Drainer) elsewhere(ctx context.Context, node *corev1.Node) (others, error) {
	found := none
	for page := ""; ; {
		var nodes corev1.NodeList
		if err := d.Client.List(ctx, &nodes, client.Limit(pageSize), client.Continue(page)); err != nil {
			return none, fmt.Errorf("look for other Nodes that pods could go to: %w", err)
		}
		for i := range nodes.Items {
			other := &nodes.Items[i]
			if other.Name == node.Name {
				continue
			}
			found = notReady // a cordon ends, too, and who deletes a node may bring another
			if ready(other) == corev1.ConditionTrue && !other.Spec.Unschedulable && other.DeletionTimestamp.IsZero() {
				return some, nil
			}
		}
		if page = nodes.Continue; page == "" {
			return found, nil
		}
	}
}

// pageSize is how many objects are read at once.
const pageSize = 200

// ready returns the status of the Node's Ready condition, or "" when it has none.
func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// unreachable reports whether the Node's kubelet is not heard of any more. Its pods never disappear then.
func unreachable(node *corev1.Node) bool { return ready(node) == corev1.ConditionUnknown }

// unreachableGraceSeconds is the grace period of evictions from a node that is unreachable, and how long after that its pods
// count as gone. It is Cluster API's.
const unreachableGraceSeconds = 1

func deleteOptions(node *corev1.Node, dryRun bool) metav1.DeleteOptions {
	var opts metav1.DeleteOptions
	if unreachable(node) {
		grace := int64(unreachableGraceSeconds)
		opts.GracePeriodSeconds = &grace
	}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	return opts
}
