// Package loginprobe logs in from time to time to the nodes of Machines, and shows in each NodeAccess which of them can't be reached, and why. So an operator
// knows before an update does.
package loginprobe

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/session"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodeaccesses;machineupdates,verbs=get;list;watch

const (
	// probes is how many nodes are logged in to at once, and probesOfCluster how many of one cluster. A login takes a second, so that an interval of an hour
	// has time for 70,000. A node that does not answer takes ten seconds, or up to a minute: those that did not the last time come after all others.
	probes, probesOfCluster = 20, 5
	// leastBackoff and mostBackoff are how long a login waits after an error that says nothing about the node.
	leastBackoff, mostBackoff = time.Second, skipped
	// skipped is after how long a login is thought of again that was due and is not to be made. That asks nobody but caches.
	skipped = 5 * time.Minute
	// intervals is for how many of them it counts that a node was reached, and lastsUntried how long it counts what was found where nobody tries.
	intervals, lastsUntried = 3, 72 * time.Hour
	// soon is how long a login takes to come at most where it is news: to the node of a new Machine, and by a NodeAccess that is new or was changed; and how
	// long the second one takes where the first has failed. Each one after that takes twice as long, until it is the interval.
	soon = 10 * time.Minute
)

// Nodes logs in to nodes. A login takes no lease and no slot, and nothing is brought to the node or changed there.
type Nodes interface {
	// SkipsLogin reports whether the node of a Machine is not to be connected to now, by what caches say. The MachineUpdate is nil if there is none.
	SkipsLogin(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) bool
	// TryLogin logs in to the node of a Machine, as an update would. Nil: that was not to be.
	TryLogin(ctx context.Context, machine types.NamespacedName) (*Finding, error)
}

// Finding is what a login has found: nothing, if it has succeeded.
type Finding struct {
	// Reason is one of those for which an update waits: NodeAccess, Unreachable, HostKey, Agent. Empty: the node can be reached.
	Reason string
	// Message says what was met, and what to do. It contains no secrets.
	Message string
}

// Prober logs in to the nodes of Machines that a NodeAccess selects. It runs in the leader only, or in who holds the shard.
type Prober struct {
	// Client reads from a cache.
	Client client.Reader
	Clock  clock.PassiveClock
	Nodes  Nodes
	// Interval is how often each node is logged in to; 0: never.
	Interval time.Duration
	Metrics  *Metrics
	known    known
	// sessions are what logs in, beside the queue. Nil: the queue does.
	sessions *session.Queue
}

// SetupWithManager has the manager run the Prober.
func (p *Prober) SetupWithManager(mgr ctrl.Manager) error {
	p.sessions = session.NewQueue(probes, probesOfCluster, leastBackoff, mostBackoff)
	if m, ok := mgr.(shard.Manager); ok {
		m.Shards.OnAcquire(p.known.forget)
	}
	return errors.Join(mgr.Add(p.sessions), shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("login").
		For(&clusterv1.Machine{}, builder.WithPredicates(otherWay())).
		Watches(&refitv1.NodeAccess{}, handler.EnqueueRequestsFromMapFunc(p.machinesOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(p.sessions.Source()), p, &clusterv1.MachineList{}))
}

// otherWay lets those changes of a Machine through by which its node may be reached in another way.
func otherWay() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		return counts(was) != counts(is) || was.UID != is.UID || !maps.Equal(was.Labels, is.Labels) ||
			was.Annotations[refitv1.AddressAnnotation] != is.Annotations[refitv1.AddressAnnotation]
	}}
}

// machinesOf are the Machines of a NodeAccess' namespace: it may select others than before.
func (p *Prober) machinesOf(ctx context.Context, na client.Object) []reconcile.Request {
	var list clusterv1.MachineList
	if err := p.Client.List(ctx, &list, client.InNamespace(na.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not find the Machines of a NodeAccess") // each comes at its turn
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// Reconcile logs in to the node of one Machine, if that is due.
func (p *Prober) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return p.sessions.Do(ctx, req, p.reconcile)
}

// Skip is told of a Machine that another process looks after.
func (p *Prober) Skip(req ctrl.Request) { p.sessions.Skip(req) }

func (p *Prober) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := p.due(ctx, req)
	switch {
	case err != nil || d.cluster == "":
		return ctrl.Result{RequeueAfter: d.after}, err
	case p.sessions == nil:
		return p.probe(ctx, req)
	}
	p.sessions.Begin(ctx, types.NamespacedName{Namespace: req.Namespace, Name: d.cluster}, req, d.urgent, func(ctx context.Context) (ctrl.Result, error) {
		return p.probe(ctx, req)
	})
	return ctrl.Result{}, nil
}

// due is when to log in to a node.
type due struct {
	// after is after how long to look again, if that is not with the next event.
	after time.Duration
	// cluster is the Cluster of the Machine if it is time to log in.
	cluster string
	// urgent means that the login comes before those that are likely to take long, since they have failed the last time.
	urgent bool
}

// due returns when to log in to the node of a Machine.
func (p *Prober) due(ctx context.Context, req ctrl.Request) (due, error) {
	var machine clusterv1.Machine
	if err := p.Client.Get(ctx, req.NamespacedName, &machine); err != nil {
		p.known.drop(req.NamespacedName)
		return due{}, client.IgnoreNotFound(err)
	}
	na, err := nodeaccess.Find(ctx, p.Client, &machine)
	if err != nil || !counts(&machine) { // what is wrong with it, the status of the NodeAccess tells
		p.known.drop(req.NamespacedName)
		return due{}, nil
	}
	find, err := index.Lookup[refitv1.MachineUpdate](ctx, index.Memory{Client: p.Client})
	if err != nil {
		return due{}, err
	}
	mu, err := updateOf(find, &machine)
	if err != nil {
		return due{}, err
	}
	now := p.Clock.Now()
	r := p.known.look(&machine, na, mu, now, p.lasts())
	if p.Interval <= 0 {
		return due{}, nil
	}
	if after := r.turn(p.Interval).Sub(now); after > 0 {
		return due{after: after}, nil
	}
	if working(mu) || p.Nodes.SkipsLogin(ctx, &machine, mu) {
		return due{after: skipped}, nil
	}
	return due{cluster: machine.Spec.ClusterName, urgent: r.fresh || r.Reason == ""}, nil
}

// probe logs in to the node of one Machine.
func (p *Prober) probe(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// It may have waited for long: what kept refit off the node then, does so now.
	if d, err := p.due(ctx, req); err != nil || d.cluster == "" {
		return ctrl.Result{RequeueAfter: d.after}, err
	}
	found, err := p.Nodes.TryLogin(ctx, req.NamespacedName)
	if err != nil || found == nil {
		return ctrl.Result{RequeueAfter: skipped}, err
	}
	p.Metrics.probed(found)
	p.known.note(req.NamespacedName, *found, p.Clock.Now(), p.lasts())
	d, err := p.due(ctx, req)
	return ctrl.Result{RequeueAfter: max(d.after, time.Second)}, err
}

// span is for how long it counts what a login has found.
type span struct {
	time.Duration
	// failures means that failures age, too: nobody logs in again to find out.
	failures bool
}

// lasts is for how long it counts what a login has found.
func (p *Prober) lasts() span {
	if p.Interval <= 0 {
		return span{Duration: lastsUntried, failures: true}
	}
	return span{Duration: intervals * p.Interval}
}

// counts reports whether a Machine has a node that is to be reached.
func counts(machine *clusterv1.Machine) bool {
	return machine.Status.NodeRef.Name != "" && machine.DeletionTimestamp.IsZero()
}
