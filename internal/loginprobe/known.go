package loginprobe

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
)

// known is what is known of the nodes. The zero value is ready.
type known struct {
	mu      sync.Mutex
	records map[types.NamespacedName]*record // by Machine
	// taken is what was taken from the status of each NodeAccess: who wrote it ran before this process, or held the shard.
	taken map[types.NamespacedName]*carried
	// ways are how each NodeAccess has nodes be reached.
	ways map[types.NamespacedName]way
	// news is how often something else has come to be known of a namespace, and of all if that is empty.
	news map[string]int64
}

// newsOf returns how often something else has come to be known of a namespace.
func (k *known) newsOf(namespace string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.news[namespace] + k.news[""]
}

// isNews notes that something else has come to be known of a namespace, or of all if that is empty.
func (k *known) isNews(namespace string) {
	if k.news == nil {
		k.news = map[string]int64{}
	}
	k.news[namespace]++
}

// way is how a NodeAccess of a generation has nodes be reached: a digest, which is the same where only other Machines are selected.
type way struct {
	uid        types.UID
	generation int64
	digest     string
}

// record is what is known of the node of a Machine.
type record struct {
	uid types.UID
	// way is how the node is reached. What was found in another way is not known of this one.
	way string
	// first is since when this process looks after the Machine, and has it reached in this way. fresh means that a login is news.
	first time.Time
	fresh bool
	// at is when there was a login last, or was tried, in this way. Zero: never.
	at time.Time
	Finding
	// since is when the first of the logins failed that have failed since, in whichever way. Zero: the last one has not.
	since time.Time
	// pooled means that it is one of the Machines of which a status has told only how many can be reached.
	pooled bool
}

// look returns what is known of a Machine, with what its MachineUpdate says, if it has one. What was found counts as long as lasts says.
func (k *known) look(machine *clusterv1.Machine, na *refitv1.NodeAccess, mu *refitv1.MachineUpdate, now time.Time, lasts span) record {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, way := client.ObjectKeyFromObject(machine), k.way(machine, na)
	r := k.records[key]
	if r == nil || r.uid != machine.UID || r.way != way {
		r = r.follow(machine, na, way, now)
		if k.records == nil {
			k.records = map[types.NamespacedName]*record{}
		}
		k.records[key] = r
		k.isNews(key.Namespace)
	}
	if f, at, ok := told(mu, now); ok && at.After(r.at) && r.sameWay(na, at) {
		k.noteOf(key, f, at, lasts)
	}
	return r.aged(now, lasts)
}

// aged returns the record without what was found too long ago.
func (r *record) aged(now time.Time, lasts span) record {
	if now.Sub(r.at) <= lasts.Duration {
		return *r
	}
	if lasts.failures {
		r.Finding, r.since = Finding{}, time.Time{}
	}
	out := *r
	if out.Reason == "" {
		out.at = time.Time{}
	}
	return out
}

// sameWay reports whether an update, or a comparison, came in at a time in the way of now. By which it came in before this process has seen the NodeAccess
// nobody knows, but if that was never changed.
func (r *record) sameWay(na *refitv1.NodeAccess, at time.Time) bool {
	return !at.Before(r.first) || !r.fresh && na.Generation <= 1 && !at.Before(na.CreationTimestamp.Time)
}

// way returns how the node of a Machine is reached by a NodeAccess.
func (k *known) way(machine *clusterv1.Machine, na *refitv1.NodeAccess) string {
	key := client.ObjectKeyFromObject(na)
	w := k.ways[key]
	if w.digest == "" || w.uid != na.UID || w.generation != na.Generation {
		spec := na.Spec
		spec.ClusterName, spec.MachineSelector = "", metav1.LabelSelector{}
		text, _ := json.Marshal(spec)
		w = way{uid: na.UID, generation: na.Generation, digest: fmt.Sprintf("%x", sha256.Sum256(text))}
		if k.ways == nil {
			k.ways = map[types.NamespacedName]way{}
		}
		k.ways[key] = w
	}
	return w.digest + " " + machine.Annotations[refitv1.AddressAnnotation]
}

// follow returns the record that comes after another one, which may be nil.
func (r *record) follow(machine *clusterv1.Machine, na *refitv1.NodeAccess, way string, now time.Time) *record {
	next := &record{uid: machine.UID, way: way, first: now}
	recent := now.Add(-soon)
	next.fresh = machine.CreationTimestamp.After(recent) || na.CreationTimestamp.After(recent) || changedLately(na, recent)
	if r != nil && r.uid == machine.UID {
		next.fresh, next.since = true, r.since
	}
	return next
}

// changedLately reports whether a status shows that the NodeAccess was changed, and not all nodes were tried since.
func changedLately(na *refitv1.NodeAccess, recent time.Time) bool {
	s := &na.Status
	if s.ObservedGeneration != na.Generation {
		return s.ObservedGeneration != 0
	}
	c := meta.FindStatusCondition(s.Conditions, refitv1.ReadyCondition)
	return c != nil && c.LastTransitionTime.After(recent) && s.Machines != nil && *s.Machines > ptr.Deref(s.Reachable, 0)+ptr.Deref(s.Unreachable, 0)
}

// note records what a login has found.
func (k *known) note(machine types.NamespacedName, f Finding, at time.Time, lasts span) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records[machine] != nil {
		k.noteOf(machine, f, at, lasts)
	}
}

// noteOf records what a login has found. It is no news that it is as it was, if that counts still.
func (k *known) noteOf(machine types.NamespacedName, f Finding, at time.Time, lasts span) {
	r := k.records[machine]
	same := r.Finding == f || r.Reason == f.Reason && lasting(r.Message) == lasting(f.Message)
	if !same || r.at.IsZero() || at.Sub(r.at) > lasts.Duration {
		k.isNews(machine.Namespace)
	}
	r.note(f, at)
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
	switch {
	case r.fresh:
		interval = min(interval, soon)
	case r.Reason != "": // as long again as it has failed, or so
		wait := soon
		for wait < interval && wait < r.at.Sub(r.since) {
			wait *= 2
		}
		interval = min(interval, wait)
	}
	return drift.Turn(r.uid, interval, since)
}

// drop forgets a Machine.
func (k *known) drop(machine types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records[machine] != nil {
		delete(k.records, machine)
		k.isNews(machine.Namespace)
	}
}

// dropAccess forgets a NodeAccess that is gone.
func (k *known) dropAccess(na types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.taken, na)
	delete(k.ways, na)
	k.isNews(na.Namespace)
}

// forget forgets what is of a shard: others have looked after it.
func (k *known) forget(ofShard func(namespace string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isNews("")
	for key := range k.records {
		if ofShard(key.Namespace) {
			delete(k.records, key)
		}
	}
	for key := range k.taken {
		if ofShard(key.Namespace) {
			delete(k.taken, key)
			delete(k.ways, key)
		}
	}
}
