package pending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/schedule"
)

const (
	// refresh is how old a view may be while something waits.
	refresh = 30 * time.Second
	// again is how long after a view there may be another one of the namespace: many things change at once.
	again = 10 * time.Second
	// share is what part of the time may go into views, as a divisor: into those of one namespace in any case, and into all together as long as none gets
	// older than oldest. A view takes long where the API server or the machine is slow, too, and then nobody is to wait for what else waits there.
	share  = 20
	oldest = 2 * time.Minute
	// busiest is what part of the time goes into views at most where even that is not kept.
	busiest = 2
)

// View keeps a PendingChange for each owner of Machines, and for each Cluster, at which something waits. It is for the leader, or who holds the shard.
type View struct {
	Client client.Client
	Gate   *changemanagement.Gate
	Owners *Owners
	// Versions says to which versions of Kubernetes Machines can be brought in place.
	Versions changemanagement.Versions
	// Limits say how many workers may be out at once.
	Limits slots.Limits
	Clock  clock.PassiveClock

	mu       sync.Mutex
	last     map[string]*sight                  // by namespace
	written  map[types.NamespacedName]time.Time // when PendingChanges were written last
	rests    map[types.NamespacedName]rest      // of Clusters at which nothing changes
	edits    atomic.Int64                       // how often policies have come to say something else
	changes  index.Changes                      // of what is in Clusters
	contents sync.Map                           // what is in Clusters: content, by types.NamespacedName
	shards   *shard.Shards
	// woken has the Clusters of which a registered extension has said something else than before.
	woken chan event.GenericEvent
}

func (v *View) cached() index.Memory {
	return index.Memory{Client: v.Client, Informers: v.Gate.Informers}
}

// sight is what waited in a namespace at an instant.
type sight struct {
	at      time.Time
	again   time.Time           // from when on there may be another one
	waiting map[string][]*entry // by Cluster
	from    map[string]basis    // as it was before, by Cluster that has PendingChanges
}

// see returns what waits in a namespace, as it was a moment ago.
func (v *View) see(ctx context.Context, namespace string) (*sight, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.Clock.Now()
	if last := v.last[namespace]; last != nil && now.Before(last.again) && !now.Before(last.at) {
		return last, nil
	}
	from, err := v.bases(ctx, namespace)
	if err != nil {
		return nil, err
	}
	s, err := v.survey(ctx, namespace)
	if err != nil {
		return nil, err
	}
	sees := &sight{at: now, waiting: map[string][]*entry{}, from: from}
	if len(s.entries) > 0 {
		if sees.at, err = v.tell(ctx, s); err != nil {
			return nil, err
		}
	}
	v.Owners.questions.forget(namespace, now)
	for _, e := range s.entries {
		sees.waiting[e.cluster.Name] = append(sees.waiting[e.cluster.Name], e)
	}
	if v.last == nil {
		v.last = map[string]*sight{}
	}
	maps.DeleteFunc(v.last, func(_ string, s *sight) bool { return !now.Before(s.again) }) // each has the objects of its namespace
	v.last[namespace] = sees
	sees.again = now.Add(apart(v.Clock.Since(now), len(v.last)))
	return sees, nil
}

// apart returns how long after a view there may be another one of its namespace, by how long it took and how many namespaces are looked at.
func apart(took time.Duration, namespaces int) time.Duration {
	alone := share * took
	all := time.Duration(namespaces) * took
	return max(again, alone, min(share*all, max(oldest, busiest*all)))
}

// tell finds out of each entry what becomes of its Machine, when that may start, and when it is expected to be done, as of the instant that it returns.
func (v *View) tell(ctx context.Context, s *survey) (time.Time, error) {
	outlook, err := v.Gate.Outlook(ctx, s.namespace)
	if err != nil {
		return time.Time{}, err
	}
	now := outlook.Now()
	v.Owners.begin()
	slices.SortFunc(s.entries, func(a, b *entry) int { return strings.Compare(a.machine.Name, b.machine.Name) })
	f := newForecast(now, outlook.Spent)
	known := s.entries[:0]
	for _, e := range s.entries {
		err := v.explain(ctx, outlook, e)
		switch {
		case apierrors.IsNotFound(err):
			continue // what it belongs to is gone
		case ctx.Err() != nil || errors.Is(err, policykind.ErrUnread):
			return now, err
		case err != nil: // one that can't be read hides no others
			e.stop(refitv1.PendingUnreadable, err.Error())
		}
		known = append(known, e)
	}
	s.entries = known
	together(s.entries)
	workers, err := v.workers(ctx, s)
	if err != nil {
		return now, err
	}
	f.run(s.entries, func(e *entry) []*lane { return v.lanes(f, e, workers) })
	return now, nil
}

// explain finds out about one entry.
func (v *View) explain(ctx context.Context, outlook *changemanagement.Outlook, e *entry) error {
	e.prospect.Role = changemanagement.RoleOf(e.machine.Labels)
	if err := v.readOwner(ctx, e); err != nil {
		return err
	}
	var judged verdict
	if e.update == nil && e.cause == refitv1.PendingUnknown && e.meta != nil {
		judged = v.judge(ctx, e)
	}
	if err := v.ask(ctx, outlook, e, judged.class); err != nil {
		return err
	}
	switch {
	case e.underWay || e.stuck:
	case e.update != nil:
		e.byUpdate()
	case e.cause == refitv1.PendingUpgrade:
		v.forbidUpgrade(ctx, e)
	default:
		e.byVerdict(outlook.Now(), judged)
	}
	e.byPause()
	return nil
}

// ask finds out what the policies mean for an entry, of which a class is known, or nothing. What an upgrade takes is looked for only where that has a
// say, as hooks do.
func (v *View) ask(ctx context.Context, outlook *changemanagement.Outlook, e *entry, class schedule.Class) error {
	prospect, err := outlook.Of(ctx, e.machine, e.update, class)
	if err == nil && e.cause == refitv1.PendingUpgrade && prospect.Scoped() {
		prospect, err = outlook.Of(ctx, e.machine, nil, v.classOfUpgrade(ctx, e))
	}
	if err != nil {
		return fmt.Errorf("look at the policies of Machine %s: %w", client.ObjectKeyFromObject(e.machine), err)
	}
	e.prospect = prospect
	if e.stuck {
		return nil
	}
	e.earliest, e.reason = prospect.Earliest, string(prospect.Reason)
	if !prospect.Open {
		e.note = prospect.Message
	}
	return nil
}

// classOfUpgrade returns what the upgrade of a Machine is, and takes.
func (v *View) classOfUpgrade(ctx context.Context, e *entry) schedule.Class {
	to := e.cluster.Spec.Topology.Version
	class := schedule.Class{Kinds: inplace.VersionKinds(e.machine.Spec.Version, to), Disruption: schedule.ReplaceDisruption}
	if takes, err := v.Versions.InPlace(ctx, e.machine, to); err == nil {
		class.Disruption = takes
	}
	return class
}

// readOwner reads what the owner of a Machine says. One that stands alone has none.
func (v *View) readOwner(ctx context.Context, e *entry) (err error) {
	if e.owner.name == "" {
		return nil
	}
	if e.meta, err = v.Owners.meta(ctx, e.machine.Namespace, e.owner); err != nil {
		return err
	}
	if e.owner.kind == "MachineDeployment" {
		e.deployment = v.Owners.deployment(ctx, e.meta)
	}
	return nil
}

// judge finds out what becomes of a Machine whose owner wants a change that Cluster API has not committed.
func (v *View) judge(ctx context.Context, e *entry) verdict {
	if e.deployment.onDelete {
		e.cause = refitv1.PendingReplacement
		e.stop(refitv1.PendingOnDelete, "the MachineDeployment has the strategy OnDelete: Cluster API replaces a Machine when somebody deletes it")
		return verdict{}
	}
	judged := v.Owners.verdict(ctx, e.machine, e.meta, e.clusterPaused() || e.ownerPaused())
	e.cause, e.claims = judged.cause, judged.claims
	return judged
}

// byVerdict takes from a verdict what it means under the policies.
func (e *entry) byVerdict(now time.Time, judged verdict) {
	if judged.cause == refitv1.PendingInPlace && !judged.material && !e.prospect.HoldsAll() {
		e.free, e.earliest, e.reason, e.note = true, now, refitv1.NotMaterial, "" // no window holds it back
		return
	}
	e.note = strings.Trim(e.note+"; "+judged.note, "; ")
	if i := slices.IndexFunc(e.prospect.Policies, forbids); judged.cause == refitv1.PendingReplacement && i >= 0 {
		e.stop(refitv1.PendingForbidden, fmt.Sprintf("policy %s forbids the replacement (replacement: Forbid); %s", e.prospect.Policies[i].Title(), judged.note))
	}
}

func forbids(p *changemanagement.Policy) bool { return p.Forbid }

// forbidUpgrade stops an upgrade for which a Machine would have to be replaced though a policy forbids it.
func (v *View) forbidUpgrade(ctx context.Context, e *entry) {
	i := slices.IndexFunc(e.prospect.Policies, forbids)
	if i < 0 {
		return
	}
	if _, err := v.Versions.InPlace(ctx, e.machine, e.cluster.Spec.Topology.Version); err != nil {
		e.stop(refitv1.PendingForbidden, fmt.Sprintf("policy %s forbids the replacement (replacement: Forbid), and the version is not brought in place: %v", e.prospect.Policies[i].Title(), err))
	}
}

// stop has an entry wait for something that no policy decides.
func (e *entry) stop(reason, note string) {
	e.stuck, e.earliest, e.reason, e.note = true, time.Time{}, reason, note
}

// byUpdate takes from a MachineUpdate why it waits.
func (e *entry) byUpdate() {
	st := e.update.Status
	current := st.ObservedDigest == e.update.Spec.Digest
	switch {
	case current && st.Phase == refitv1.PhaseFailed:
		e.stop(refitv1.PendingFailed, "the update has failed, and waits for refit retry, refit rollback or refit abandon: "+st.Message)
	case current && st.Phase == refitv1.PhaseWaiting && st.Reason == refitv1.ReasonBudget && e.prospect.Open:
		e.reason, e.note = string(schedule.BudgetExhausted), st.Message
	case current && st.Phase == refitv1.PhaseWaiting && st.Reason != refitv1.ReasonWindow:
		e.reason, e.note = st.Reason, st.Message
	}
}

// byPause stops what waits at a Cluster or an owner that is paused.
func (e *entry) byPause() {
	switch {
	case e.underWay:
	case e.clusterPaused():
		e.stop(refitv1.PendingClusterPaused, "the Cluster is paused")
	case e.update == nil && e.ownerPaused():
		e.stop(refitv1.PendingOwnerPaused, "the "+e.owner.kind+" is paused")
	}
}

func (e *entry) clusterPaused() bool {
	return ptr.Deref(e.cluster.Spec.Paused, false) || annotations.HasPaused(e.cluster)
}

func (e *entry) ownerPaused() bool { return e.deployment.paused || e.meta != nil && isPaused(e.meta) }

// workers returns how many workers Clusters have at which something waits.
func (v *View) workers(ctx context.Context, s *survey) (map[string]int, error) {
	out := map[string]int{}
	for _, e := range s.entries {
		out[e.cluster.Name] = 0
	}
	for name := range maps.Keys(out) {
		if err := index.Each(ctx, v.cached(), index.InCluster(s.namespace, name), &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
			if changemanagement.RoleOf(m.Labels) == refitv1.WorkerRole {
				out[name]++
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("list the Machines of Cluster %s/%s: %w", s.namespace, name, err)
		}
	}
	return out, nil
}

// lanes returns what bounds how many Machines are out at once.
func (v *View) lanes(f *forecast, e *entry, workers map[string]int) []*lane {
	if e.prospect.Role == refitv1.ControlPlaneRole {
		return []*lane{f.lane("control plane of "+e.cluster.Name, 1)}
	}
	var out []*lane
	if e.cause == refitv1.PendingReplacement {
		return append(out, f.lane("replaced by "+e.owner.name, e.deployment.replaced))
	}
	if e.owner.name != "" {
		out = append(out, f.lane("updated by "+e.owner.name, e.deployment.inPlace))
	}
	return append(out, f.lane("workers of "+e.cluster.Name, v.Limits.Of(workers[e.cluster.Name])))
}
