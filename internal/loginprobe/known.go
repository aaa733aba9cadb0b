package loginprobe

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
)

// known is what is known of the nodes. The zero value is ready.
type known struct {
	mu      sync.Mutex
	records map[types.NamespacedName]*record // by Machine
	// taken are the NodeAccesses from whose status was taken what it knew: who wrote it ran before this process, or held the shard.
	taken map[types.NamespacedName]bool
}

// record is what is known of the node of a Machine.
type record struct {
	uid types.UID
	// access is the NodeAccess, of its generation.
	access     string
	generation int64
	// first is since when this process looks after the Machine, by this NodeAccess. fresh means that a login is news.
	first time.Time
	fresh bool
	// at is when there was a login last, or was tried. Zero: never.
	at time.Time
	Finding
	// since is when the first of the logins failed that have failed since. Zero: the last one has not.
	since time.Time
}

// look returns what is known of a Machine, with what its MachineUpdate says, if it has one.
func (k *known) look(machine *clusterv1.Machine, na *refitv1.NodeAccess, mu *refitv1.MachineUpdate, now time.Time) record {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKeyFromObject(machine)
	r := k.records[key]
	if r == nil || !r.isOf(machine, na) {
		r = r.follow(machine, na, now)
		if k.records == nil {
			k.records = map[types.NamespacedName]*record{}
		}
		k.records[key] = r
	}
	f, at, ok := told(mu, now)
	if before := r.fresh && at.Before(r.first); ok && at.After(r.at) && !before {
		r.note(f, at)
	}
	return *r
}

// isOf reports whether a record is of a Machine, and of the way to its node that a NodeAccess has now.
func (r *record) isOf(machine *clusterv1.Machine, na *refitv1.NodeAccess) bool {
	return r.uid == machine.UID && r.access == na.Name && r.generation == na.Generation
}

// follow returns the record that comes after another one, which may be nil.
func (r *record) follow(machine *clusterv1.Machine, na *refitv1.NodeAccess, now time.Time) *record {
	next := &record{uid: machine.UID, access: na.Name, generation: na.Generation, first: now}
	recent := now.Add(-soon)
	next.fresh = machine.CreationTimestamp.After(recent) || na.CreationTimestamp.After(recent)
	if r != nil && r.uid == machine.UID { // what is known holds until the other way was tried
		next.fresh, next.at, next.Finding, next.since = true, r.at, r.Finding, r.since
	}
	return next
}

// note records what a login has found.
func (k *known) note(machine types.NamespacedName, f Finding, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.records[machine]; r != nil {
		r.note(f, at)
	}
}

func (r *record) note(f Finding, at time.Time) {
	switch {
	case f.Reason == "":
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = at
	}
	r.Finding, r.at, r.fresh = f, at, false
}

// turn returns when to log in to the node next.
func (r *record) turn(interval time.Duration) time.Time {
	since := r.first
	if r.at.After(since) {
		since = r.at
	}
	if r.fresh || r.Reason != "" {
		interval = min(interval, soon)
	}
	return drift.Turn(r.uid, interval, since)
}

// take takes from the status of a NodeAccess what it knew of Machines, once.
func (k *known) take(na *refitv1.NodeAccess, machines []*clusterv1.Machine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKeyFromObject(na)
	if k.taken[key] {
		return
	}
	if k.taken == nil {
		k.taken = map[types.NamespacedName]bool{}
	}
	k.taken[key] = true
	s := &na.Status
	if s.ObservedGeneration != na.Generation || s.ProbedAt == nil {
		return
	}
	listed := map[string]*refitv1.UnreachedMachine{}
	for i := range s.Unreached {
		listed[s.Unreached[i].Name] = &s.Unreached[i]
	}
	for _, m := range machines {
		if r := k.records[client.ObjectKeyFromObject(m)]; r != nil && m.CreationTimestamp.Before(s.ProbedAt) {
			r.take(listed[m.Name], &m.CreationTimestamp, s)
		}
	}
}

// take takes from a status what it knew of a Machine, which it may list, if nothing later is known.
func (r *record) take(entry *refitv1.UnreachedMachine, made *metav1.Time, s *refitv1.NodeAccessStatus) {
	switch {
	case r.fresh || !r.at.Before(s.ProbedAt.Time):
	case entry != nil && !entry.Since.Before(made):
		r.Finding, r.at, r.since = Finding{entry.Reason, entry.Message}, s.ProbedAt.Time, entry.Since.Time
	case allTold(s):
		r.Finding, r.at, r.since = Finding{}, s.ProbedAt.Time, time.Time{}
	}
}

// allTold reports whether a status tells of each Machine that it counts: those that it does not list were reached.
func allTold(s *refitv1.NodeAccessStatus) bool {
	return s.Machines != nil && s.Reachable != nil && int(*s.Machines) == int(*s.Reachable)+len(s.Unreached)
}

// drop forgets a Machine.
func (k *known) drop(machine types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, machine)
}

// dropAccess forgets a NodeAccess that is gone.
func (k *known) dropAccess(na types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.taken, na)
}

// forget forgets what is of a shard: others have looked after it.
func (k *known) forget(ofShard func(namespace string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.records {
		if ofShard(key.Namespace) {
			delete(k.records, key)
		}
	}
	for key := range k.taken {
		if ofShard(key.Namespace) {
			delete(k.taken, key)
		}
	}
}

// updateOf returns the MachineUpdate of a Machine out of a cache, or nil.
func updateOf(ctx context.Context, cached client.Reader, machine *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	var mu refitv1.MachineUpdate
	switch err := cached.Get(ctx, client.ObjectKeyFromObject(machine), &mu); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there need be none
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s/%s: %w", machine.Namespace, machine.Name, err)
	case !metav1.IsControlledBy(&mu, machine):
		return nil, nil //nolint:nilnil // it is that of an earlier Machine
	}
	return &mu, nil
}

// working reports whether an update works on the node: it knows better whether that can be reached.
func working(mu *refitv1.MachineUpdate) bool {
	if mu == nil {
		return false
	}
	switch mu.Status.Phase {
	case refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying:
		return true
	default:
		return mu.Status.RebootingSince != nil
	}
}

// unreached are the reasons for which an update, or a comparison, has not come in to the node.
var unreached = map[string]bool{
	refitv1.ReasonNodeAccess: true, refitv1.ReasonUnreachable: true, refitv1.ReasonHostKey: true, refitv1.ReasonAgent: true,
}

// told returns what a MachineUpdate says of the last login to its node, and when that was: an update and a comparison log in, too. ok is false if it
// says nothing.
func told(mu *refitv1.MachineUpdate, now time.Time) (f Finding, at time.Time, ok bool) {
	if mu == nil {
		return f, at, false
	}
	s := &mu.Status
	if waitsForNode(mu) {
		return Finding{s.Reason, s.Message}, now, true // it tries again and again
	}
	if s.Phase == refitv1.PhaseSucceeded && s.FinishedAt != nil {
		at = s.FinishedAt.Time
	}
	if s.Drift != nil {
		f, at = compared(s, at)
	}
	return f, at, !at.IsZero()
}

// waitsForNode reports whether an update waits until it can log in.
func waitsForNode(mu *refitv1.MachineUpdate) bool {
	s := &mu.Status
	return s.Phase == refitv1.PhaseWaiting && s.ObservedDigest == mu.Spec.Digest && unreached[s.Reason] && s.RebootingSince == nil
}

// compared returns what comparisons of the node have met, and when, if that was after another login, which succeeded.
func compared(s *refitv1.MachineUpdateStatus, login time.Time) (Finding, time.Time) {
	d, at := s.Drift, login
	if d.ComparedAt != nil && d.ComparedAt.After(at) {
		at = d.ComparedAt.Time
	}
	c := meta.FindStatusCondition(s.Conditions, refitv1.DriftedCondition)
	if c != nil && c.Status == metav1.ConditionUnknown && unreached[c.Reason] && d.CheckedAt != nil && d.CheckedAt.After(at) {
		return Finding{c.Reason, c.Message}, d.CheckedAt.Time
	}
	return Finding{}, at
}
