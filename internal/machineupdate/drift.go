package machineupdate

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/schedule"
)

const (
	// driftChecks is how many nodes are compared at once. A comparison takes a second; the interval has time for many.
	driftChecks = 5
	// driftTimeout bounds one comparison, the way to the node and the bringing of the agent included.
	driftTimeout = 2 * time.Minute
	// driftSkipped is when a comparison that was due and could not be made is succeeded at again. That asks nobody but caches.
	driftSkipped = 5 * time.Minute
)

// DriftChecker compares from time to time the nodes of Machines whose update has succeeded with what was applied to them. It runs
// in the leader only. A comparison reads: it takes no lease and no slot, and nothing on the node but refit's own agent is brought
// there.
type DriftChecker struct {
	// Updates reaches nodes, and writes what was found.
	Updates *Reconciler
	// Interval is how often each node is compared; 0: only when a person asks.
	Interval time.Duration
	Metrics  *DriftMetrics

	// began is when this process did. What was missed before is not made up for all at once.
	began time.Time
}

// SetupWithManager has the manager run the DriftChecker.
func (c *DriftChecker) SetupWithManager(mgr ctrl.Manager) error {
	c.began = c.Updates.Clock.Now()
	succeeded := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		mu, ok := obj.(*refitv1.MachineUpdate)
		return ok && upToDate(mu)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("drift").
		For(&refitv1.MachineUpdate{}, builder.WithPredicates(succeeded)).
		WithOptions(controller.Options{MaxConcurrentReconciles: driftChecks}).
		Complete(c)
}

// Reconcile compares the node of one Machine, if that is due.
func (c *DriftChecker) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cached, mu refitv1.MachineUpdate
	if err := c.Updates.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if after, due := c.due(&cached); !due {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	if c.skips(ctx, &cached) {
		return ctrl.Result{RequeueAfter: driftSkipped}, nil
	}
	if err := c.Updates.Live.Get(ctx, req.NamespacedName, &mu); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if after, due := c.due(&mu); !due {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	u := &update{Reconciler: c.Updates, mu: &mu}
	skipped, err := c.check(ctx, u)
	if err != nil || skipped {
		return ctrl.Result{RequeueAfter: driftSkipped}, err
	}
	after, _ := c.due(u.mu)
	return ctrl.Result{RequeueAfter: after}, nil
}

// skips says whether a node that is due is not to be connected to, by what caches say. Who has asked is told so, which takes more than
// that.
func (c *DriftChecker) skips(ctx context.Context, mu *refitv1.MachineUpdate) bool {
	if checkAsked(mu) {
		return false
	}
	var machine clusterv1.Machine
	if err := c.Updates.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine); err != nil {
		return false
	}
	var cluster clusterv1.Cluster
	if err := c.Updates.Client.Get(ctx, types.NamespacedName{Namespace: mu.Namespace, Name: machine.Spec.ClusterName}, &cluster); err != nil {
		return false
	}
	if !machine.DeletionTimestamp.IsZero() || annotations.IsPaused(&cluster, &machine) {
		return true
	}
	w, err := (&update{Reconciler: c.Updates, mu: mu}).keptOff(ctx, &machine)
	return err == nil && w != nil
}

// upToDate says whether the node shows what is asked for, as far as is known.
func upToDate(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseSucceeded && mu.Status.ObservedDigest == mu.Spec.Digest && mu.DeletionTimestamp.IsZero()
}

// checkAsked says whether a person has asked for a comparison.
func checkAsked(mu *refitv1.MachineUpdate) bool {
	asked := mu.Annotations[refitv1.CheckDriftAnnotation]
	return asked != "" && (mu.Status.Drift == nil || asked != mu.Status.Drift.ObservedCheck)
}

// due says whether the node is to be compared now, or else when. 0: not by itself.
func (c *DriftChecker) due(mu *refitv1.MachineUpdate) (after time.Duration, due bool) {
	switch {
	case !upToDate(mu):
		return 0, false
	case checkAsked(mu):
		return 0, true
	case c.Interval <= 0:
		return 0, false
	}
	since := c.began
	// Times in a status are whole seconds: its own turn is not to come again.
	if d := mu.Status.Drift; d != nil && d.CheckedAt != nil && d.CheckedAt.After(since) {
		since = d.CheckedAt.Add(time.Second)
	}
	after = turn(mu.UID, c.Interval, since).Sub(c.Updates.Clock.Now())
	return max(after, 0), after <= 0
}

// turn returns when it is a node's turn next. Each has the same one in every interval, whoever leads, and those of many nodes are
// spread over it.
func turn(uid types.UID, interval time.Duration, since time.Time) time.Time {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	own := time.Duration(hash.Sum64() % uint64(interval))
	next := since.Truncate(interval).Add(own)
	if !next.After(since) {
		next = next.Add(interval)
	}
	return next
}

// check compares the node and records what it finds. It says whether that has to wait, because the node is not to be connected to.
func (c *DriftChecker) check(ctx context.Context, u *update) (skipped bool, err error) {
	machine, w, err := u.machine(ctx)
	if err != nil || machine == nil && w == nil {
		return false, err
	}
	if u.regarding = machine; w == nil {
		w, err = u.keptOff(ctx, machine)
	}
	switch {
	case err != nil:
		return false, err
	case w != nil && !checkAsked(u.mu):
		return true, nil // nobody waits for an answer, and what was found last stays true
	case w != nil:
		return false, c.found(ctx, u, unknown(w.reason, "the node was not compared: "+w.message))
	}
	f, err := u.compare(ctx, machine)
	if err != nil {
		return false, err
	}
	return false, c.found(ctx, u, f)
}

// compare has the node compared, and says what that means and what becomes of it.
func (u *update) compare(ctx context.Context, machine *clusterv1.Machine) (finding, error) {
	report, w, err := u.report(ctx, machine)
	switch {
	case err != nil:
		return finding{}, err
	case w != nil:
		return unknown(w.reason, w.message), nil
	}
	f := judge(report, u.mu.Status.ObservedDigest)
	if f.drifted() {
		f.repair, err = u.answer(ctx, machine, &f)
	}
	return f, err
}

// keptOff returns what keeps refit from connecting to the node at all: a policy that is closed and holds back everything.
func (u *update) keptOff(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	d, err := u.Gate.Ask(ctx, machine, u.mu)
	if err != nil || d.Open || d.Reason == schedule.BudgetExhausted || !d.HoldsAll() {
		return nil, err
	}
	return &wait{reason: refitv1.ReasonWindow, message: d.Message}, nil
}

// report has the node compare itself with its record.
func (u *update) report(ctx context.Context, machine *clusterv1.Machine) (*node.DriftReport, *wait, error) {
	a, w := u.access(ctx, machine)
	if w != nil {
		return nil, w, nil
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

func (u *update) askForDrift(ctx context.Context, a *access, machine *clusterv1.Machine) (*node.DriftReport, error) {
	conn, err := u.Dialer.Dial(ctx, a.target)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // it was only asked
	client, err := u.client(conn, a)
	if err != nil {
		return nil, err
	}
	report, err := client.Drift(ctx, node.DriftRequest{Machine: machineID(machine)})
	return &report, err
}
