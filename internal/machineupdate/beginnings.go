package machineupdate

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// beginnings are Machines whose updates were recorded, and when. Each is one for begunWithin at most.
type beginnings struct {
	mu     sync.Mutex
	at     map[types.NamespacedName]time.Time
	looked time.Time // when those were taken out last whose time is over
}

func (b *beginnings) add(key types.NamespacedName, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil {
		b.at = map[types.NamespacedName]time.Time{}
	}
	b.at[key] = now
}

func (b *beginnings) remove(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at, key)
}

// number returns how many there are, as of a second ago.
func (b *beginnings) number(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if age := now.Sub(b.looked); len(b.at) > 0 && (age >= time.Second || age < 0) {
		maps.DeleteFunc(b.at, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= begunWithin })
		b.looked = now
	}
	return len(b.at)
}
