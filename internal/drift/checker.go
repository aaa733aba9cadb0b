// Package drift compares from time to time the nodes of Machines that are up to date with what was applied to them.
package drift

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/session"
	"github.com/capi-refit/refit/internal/shard"
)

const (
	// checks is how many nodes are compared at once, and checksOfCluster how many of one cluster. A comparison takes a second, so that an
	// interval of an hour has time for 180,000; a node that does not answer takes up to two minutes.
	checks, checksOfCluster = 50, 10
	// leastBackoff and mostBackoff are how long a comparison waits after an error.
	leastBackoff, mostBackoff = time.Second, Skipped
	// Skipped is after how long a comparison is tried again that was due and could not be made. That asks nobody but caches.
	Skipped = 5 * time.Minute
)

// Nodes compares nodes with what was applied to them. A comparison takes no lease and no slot, and nothing on the node but refit's own
// agent is brought there.
type Nodes interface {
	// SkipsDrift reports whether the node of a MachineUpdate is not to be connected to now, by what caches say.
	SkipsDrift(ctx context.Context, mu *refitv1.MachineUpdate) bool
	// CheckDrift compares the node of a MachineUpdate, which was read live, and writes what it finds into its status. Nil: the comparison
	// has to wait.
	CheckDrift(ctx context.Context, mu *refitv1.MachineUpdate) (*Finding, error)
}

// Checker has the nodes of Machines compared whose update has succeeded. It runs in the leader only.
type Checker struct {
	// Client reads from a cache, and Live from the API server.
	Client, Live client.Reader
	Clock        clock.PassiveClock
	Nodes        Nodes
	// Interval is how often each node is compared; 0: only when a person asks.
	Interval time.Duration
	// sessions are what compares nodes, beside the queue. Nil: the queue does.
	sessions *session.Queue
	// Began is when this process did. What was missed before is not made up for all at once.
	Began   time.Time
	Metrics *Metrics
}

// SetupWithManager has the manager run the Checker.
func (c *Checker) SetupWithManager(mgr ctrl.Manager) error {
	succeeded := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		mu, ok := obj.(*refitv1.MachineUpdate)
		return ok && UpToDate(mu)
	})
	c.sessions = session.NewQueue(checks, checksOfCluster, leastBackoff, mostBackoff)
	return errors.Join(mgr.Add(c.sessions), shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("drift").
		For(&refitv1.MachineUpdate{}, builder.WithPredicates(succeeded)).
		WatchesRawSource(c.sessions.Source()), c, &refitv1.MachineUpdateList{}))
}

// Reconcile compares the node of one Machine, if that is due.
func (c *Checker) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return c.sessions.Do(ctx, req, c.reconcile)
}

// Skip is told of a Machine that another process looks after.
func (c *Checker) Skip(req ctrl.Request) { c.sessions.Skip(req) }

func (c *Checker) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cached refitv1.MachineUpdate
	if err := c.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if after, due := c.due(&cached); !due {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	// Who has asked is told why nothing was compared, which takes more than caches.
	if !Asked(&cached) && c.Nodes.SkipsDrift(ctx, &cached) {
		return ctrl.Result{RequeueAfter: Skipped}, nil
	}
	if c.sessions == nil {
		return c.check(ctx, req)
	}
	cluster := types.NamespacedName{Namespace: req.Namespace, Name: cached.Labels[clusterv1.ClusterNameLabel]}
	c.sessions.Begin(ctx, cluster, req, Asked(&cached), func(ctx context.Context) (ctrl.Result, error) { return c.check(ctx, req) })
	return ctrl.Result{}, nil
}

// check compares the node of one Machine, if it is due as the API server has it, too.
func (c *Checker) check(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var mu refitv1.MachineUpdate
	if err := c.Live.Get(ctx, req.NamespacedName, &mu); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if after, due := c.due(&mu); !due {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	if mu.Behind() {
		return ctrl.Result{RequeueAfter: Skipped}, nil // it is restored first
	}
	found, err := c.Nodes.CheckDrift(ctx, &mu)
	if err != nil || found == nil {
		return ctrl.Result{RequeueAfter: Skipped}, err
	}
	c.Metrics.checked(found.Status)
	after, _ := c.due(&mu)
	return ctrl.Result{RequeueAfter: after}, nil
}

// UpToDate reports whether the node shows what is asked for, as far as is known.
func UpToDate(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseSucceeded && mu.Status.ObservedDigest == mu.Spec.Digest && mu.DeletionTimestamp.IsZero()
}

// Asked reports whether a person has asked for a comparison.
func Asked(mu *refitv1.MachineUpdate) bool {
	asked := mu.DriftRequest()
	return asked != "" && (mu.Status.Drift == nil || asked != mu.Status.Drift.ObservedCheck)
}

// due reports whether the node is to be compared now, or else after how long. 0: not by itself.
func (c *Checker) due(mu *refitv1.MachineUpdate) (after time.Duration, due bool) {
	switch {
	case !UpToDate(mu):
		return 0, false
	case Asked(mu):
		return 0, true
	case c.Interval <= 0:
		return 0, false
	}
	since := c.Began
	// Times in a status are whole seconds: its own turn is not to come again.
	if d := mu.Status.Drift; d != nil && d.CheckedAt != nil && d.CheckedAt.After(since) {
		since = d.CheckedAt.Add(time.Second)
	}
	after = Turn(mu.UID, c.Interval, since).Sub(c.Clock.Now())
	return max(after, 0), after <= 0
}

// Turn returns when it is a node's turn next after a time. Each has the same one in every interval, whoever leads, and those of many nodes
// are spread over it.
func Turn(uid types.UID, interval time.Duration, since time.Time) time.Time {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	own := time.Duration(hash.Sum64() % uint64(interval))
	next := since.Truncate(interval).Add(own)
	if !next.After(since) {
		next = next.Add(interval)
	}
	return next
}
