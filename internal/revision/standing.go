package revision

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Standing remembers from what things were made, by their names, so that none is made again from the same. What has a say in a thing is in From, and is read
// before the thing is made: what happens meanwhile has it made again. The zero value is ready.
type Standing[From comparable] struct {
	mu  sync.Mutex
	all map[types.NamespacedName]standing[From]
}

type standing[From comparable] struct {
	from  From
	until time.Time
}

// Stands reports whether a thing was made from the same, and counts still.
func (s *Standing[From]) Stands(now time.Time, name types.NamespacedName, from From) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.all[name]
	return ok && last.from == from && now.Before(last.until)
}

// Note notes from what a thing was made, and until when that counts.
func (s *Standing[From]) Note(now time.Time, name types.NamespacedName, from From, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.NamespacedName]standing[From]{}
	}
	maps.DeleteFunc(s.all, func(_ types.NamespacedName, last standing[From]) bool { return !now.Before(last.until) })
	s.all[name] = standing[From]{from, until}
}
