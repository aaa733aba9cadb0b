package changemanagement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/shard"
)

// Soaks asks the health gates of policies while nodes soak. It runs in the leader, or in who holds the shard.
type Soaks struct {
	Gate     *Gate
	Recorder events.EventRecorder
}

// soaksAtOnce is how many nodes that soak are looked at together. Each look waits for answers.
const soaksAtOnce = 50

// SetupWithManager has the manager run it.
func (s *Soaks) SetupWithManager(mgr ctrl.Manager) error {
	is := func(o client.Object) bool {
		mu, ok := o.(*refitv1.MachineUpdate)
		return ok && soaking(mu)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("changemanagementpolicy-soak").
		For(&refitv1.MachineUpdate{}, builder.WithPredicates(predicate.NewPredicateFuncs(is))).
		WithOptions(controller.Options{MaxConcurrentReconciles: soaksAtOnce})
	return shard.Complete(mgr, b, s, &refitv1.MachineUpdateList{}, is)
}

// soaking reports whether all is done on the node of an update, and it is watched.
func soaking(mu *refitv1.MachineUpdate) bool {
	s := &mu.Status
	return s.SoakingSince != nil && s.Phase != refitv1.PhaseSucceeded && s.Phase != refitv1.PhaseFailed
}

// Reconcile asks the gates of the policies of a Machine whose node soaks, and notes those that don't hold.
func (s *Soaks) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var mu refitv1.MachineUpdate
	var machine clusterv1.Machine
	for _, obj := range []client.Object{&mu, &machine} {
		if err := s.Gate.Client.Get(ctx, req.NamespacedName, obj); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if !soaking(&mu) || s.Gate.Health == nil {
		return ctrl.Result{}, nil
	}
	candidate, err := (Candidates{s.Gate.Client}).Machine(ctx, &machine)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	policies, err := s.Gate.Policies.Select(candidate)
	if err != nil {
		return ctrl.Result{}, err
	}
	var again time.Duration
	var wait sync.WaitGroup
	for _, p := range policies {
		for _, g := range p.Gates {
			if again == 0 || g.Interval/2 < again {
				again = g.Interval / 2
			}
			wait.Go(func() { s.ask(ctx, p, g, candidate.Cluster, &mu, &machine) })
		}
	}
	wait.Wait()
	return ctrl.Result{RequeueAfter: again}, nil
}

// ask asks one gate. The soak is longer than an interval, or it is asked once.
func (s *Soaks) ask(ctx context.Context, p *Policy, g *health.Gate, cluster string, mu *refitv1.MachineUpdate, machine *clusterv1.Machine) {
	ctx, cancel := context.WithTimeout(ctx, g.Interval)
	defer cancel()
	began := mu.Status.SoakingSince.Time
	since := s.Gate.Clock.Now().Add(-g.Interval / 2)
	if since.Before(began) {
		since = began
	}
	a, err := s.Gate.Health.Ask(ctx, p.version(), g, cluster, since)
	if err != nil || a.State != refitv1.GateFailing {
		return // who is next asks again, and does not start before there is an answer
	}
	failure := refitv1.GateFailure{
		LedgerEntry: refitv1.LedgerEntry{Machine: mu.Name, Update: string(mu.UID), At: metav1.NewTime(a.At.Truncate(time.Second))}, Gate: g.Name, Message: a.Says,
	}
	if failure.At.Time.Before(began) {
		failure.At.Time = began // it has whole seconds
	}
	if !s.Gate.soaks.note(s.Gate.Clock.Now(), p.UID, failure, began) {
		return
	}
	note := fmt.Sprintf("while the node soaked, health gate %s of policy %s did not hold: %s", g.Name, p.Name, a.Says)
	ctrl.LoggerFrom(ctx).Info("A health gate does not hold while a node soaks", "machine", client.ObjectKeyFromObject(machine), "policy", p.NamespacedName, "gate", g.Name, "says", a.Says)
	s.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, "HealthGateFailed", "Soak", "%s", policykind.Note(note))
}

// soakFailures are gates that did not hold while nodes soaked, since the ledgers were written last.
type soakFailures struct {
	mu  sync.Mutex
	all map[soakKey]refitv1.GateFailure
}

// soakKey is an update under a policy: one failure of it counts once, whichever gates there are. Another policy of the name is another one.
type soakKey struct {
	policy types.UID
	update string
}

// longestSoakFailure is for how long one is known: longer than a node soaks. By then the ledgers have it.
const longestSoakFailure = 2 * time.Hour

// note notes a failure in a soak that began at an instant, and reports whether it is the first one of that.
func (f *soakFailures) note(now time.Time, policy types.UID, failure refitv1.GateFailure, began time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[soakKey]refitv1.GateFailure{}
	}
	maps.DeleteFunc(f.all, func(_ soakKey, o refitv1.GateFailure) bool { return now.Sub(o.At.Time) > longestSoakFailure })
	key := soakKey{policy, failure.Update}
	if known, ok := f.all[key]; ok && !known.At.Time.Before(began) {
		return false
	}
	f.all[key] = failure
	return true
}

// of returns those under a policy.
func (f *soakFailures) of(policy types.UID) []refitv1.GateFailure {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []refitv1.GateFailure
	for key, failure := range f.all {
		if key.policy == policy {
			out = append(out, failure)
		}
	}
	return out
}

// soaked takes what the ledger of a policy has of soaks, and what is not in it yet. Of an update the latest counts.
func (l ledger) soaked(now time.Time, p *refitv1.ChangeManagementPolicy, noted []refitv1.GateFailure) {
	var known []refitv1.GateFailure
	if p.Status.Ledger != nil {
		known = p.Status.Ledger.GateFailures
	}
	seen, ok := failuresSeen(now, p)
	for _, failure := range slices.Concat(known, noted) {
		if before, twice := l.soaks[failure.Update]; twice && !failure.At.After(before.At.Time) {
			continue
		}
		if !ok || failure.At.After(seen) {
			l.soaks[failure.Update] = failure
		}
	}
}

// countSoaks adds to a tally those that have not failed as well.
func (l ledger) countSoaks(t *tally, b *books) {
	for update, failure := range l.soaks {
		r := b.entered(failure.LedgerEntry)
		if _, counted := l.failures[update]; !counted && (r == nil || !r.failed) {
			t.failed++
			t.soaks++
		}
	}
}

// soakFailures returns them as a status has them, the latest first.
func (l ledger) soakFailures(now time.Time) []refitv1.GateFailure {
	out := slices.DeleteFunc(slices.Collect(maps.Values(l.soaks)), func(f refitv1.GateFailure) bool { return now.Sub(f.At.Time) > memory })
	slices.SortFunc(out, func(a, b refitv1.GateFailure) int {
		return cmp.Or(b.At.Compare(a.At.Time), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Update, b.Update))
	})
	return out[:min(len(out), mostFailures)]
}
