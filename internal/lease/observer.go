package lease

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// DefaultObserved is how many leases an Observer of a large fleet should keep.
const DefaultObserved = 10000

// Observer knows for how long the leases of others have not changed, as client-go's leader election does: by our clock, because
// nobody knows how wrong the one is that wrote their times. It is one for all workload clusters, and is lost with the
// process: then every watch starts again. A nil Observer never finds that anything has lapsed.
type Observer struct {
	mu   sync.Mutex
	seen *lru.Cache
}

type observation struct {
	spec  coordinationv1.LeaseSpec
	since time.Time
}

// NewObserver returns an Observer of at most size leases. When there are more it forgets the one that was looked at least
// recently, whose watch then starts again.
func NewObserver(size int) *Observer {
	return &Observer{seen: lru.New(max(size, 1))}
}

// Unchanged returns how long ago the record of the lease was first seen as it is now. Metadata does not count: labels may change
// while the holder is long gone. For the result to be monotonic now must be so, too.
func (o *Observer) Unchanged(lease *coordinationv1.Lease, now time.Time) time.Duration {
	if o == nil || lease.UID == "" {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, ok := o.seen.Get(lease.UID); ok {
		if last := last.(observation); apiequality.Semantic.DeepEqual(last.spec, lease.Spec) {
			return now.Sub(last.since)
		}
	}
	o.seen.Add(lease.UID, observation{*lease.Spec.DeepCopy(), now})
	return 0
}

// Forget drops what is known of a lease that is nobody's, or ours.
func (o *Observer) Forget(lease types.UID) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen.Remove(lease)
}

// Patience is for how long the record of a lease must not change before it has lapsed. The tenth is for clocks that run at
// different rates.
func Patience(lease *coordinationv1.Lease) time.Duration {
	d := durationOf(lease)
	return d + d/10
}
