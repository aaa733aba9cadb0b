package shard

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Shards are those that this process holds. Nil stands for all there are: nobody else works.
type Shards struct {
	// Count is how many there are.
	Count int

	mu      sync.Mutex
	held    map[int]*held
	forgets []func(ofShard func(namespace string) bool)
	starts  []func(ofShard func(namespace string) bool)
}

// held is a shard that is held.
type held struct {
	ctx     context.Context //nolint:containedctx // that of all that works on the shard
	cancel  context.CancelFunc
	working sync.WaitGroup
}

// OnAcquire has f called before the work on a shard begins, to forget what is known of its namespaces: others have worked on them meanwhile. It
// is for the time before anything is held.
func (s *Shards) OnAcquire(f func(ofShard func(namespace string) bool)) {
	if s != nil {
		s.forgets = append(s.forgets, f)
	}
}

// onStart has f called when the work on a shard may begin. It is for the time before anything is held.
func (s *Shards) onStart(f func(ofShard func(namespace string) bool)) { s.starts = append(s.starts, f) }

// Holds reports whether this process works on a namespace.
func (s *Shards) Holds(namespace string) bool {
	if s == nil {
		return true
	}
	return s.HoldsShard(Of(namespace, s.Count))
}

// HoldsShard reports whether this process holds a shard.
func (s *Shards) HoldsShard(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[shard] != nil
}

// number returns how many shards this process holds.
func (s *Shards) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Enter returns a context for work on a namespace that no controller does, which ends when its shard is released or lost, and what to call when the work has
// ended. If the shard is not held, ok is false.
func (s *Shards) Enter(ctx context.Context, namespace string) (_ context.Context, leave func(), ok bool) {
	if s == nil {
		return ctx, func() {}, true
	}
	return s.enter(ctx, namespace)
}

// enter returns a context for work on a namespace, which ends when its shard is released or lost, and what to call when the work has ended. If the
// shard is not held, ok is false.
func (s *Shards) enter(ctx context.Context, namespace string) (_ context.Context, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[Of(namespace, s.Count)]
	if h == nil {
		return ctx, nil, false
	}
	ctx, leave = h.enter(context.WithValue(ctx, shardOf{}, h))
	return ctx, leave, true
}

func (h *held) enter(ctx context.Context) (context.Context, func()) {
	h.working.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		h.working.Done()
	}
}

// shardOf is the key of a context's *held.
type shardOf struct{}

// Extend returns a context for work that goes on when what began it has ended, and what to call when that work has ended, too. It is to be
// called before the former ends, with a context that has the values of its context. Where nothing is divided it does nothing.
func Extend(ctx context.Context) (context.Context, func()) {
	if h, ok := ctx.Value(shardOf{}).(*held); ok {
		return h.enter(ctx)
	}
	return ctx, func() {}
}

// acquire has the work on a shard begin, if that is still to be when what is known of it is forgotten.
func (s *Shards) acquire(shard int, still func() bool) {
	of := func(namespace string) bool { return Of(namespace, s.Count) == shard }
	for _, forget := range s.forgets {
		forget(of)
	}
	ctx, cancel := context.WithCancel(context.Background()) // whoever ends the work on the shard calls cancel
	if !s.put(shard, &held{ctx: ctx, cancel: cancel}, still) {
		cancel()
		return
	}
	for _, start := range s.starts {
		start(of)
	}
}

func (s *Shards) put(shard int, h *held, still func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !still() {
		return false
	}
	if s.held == nil {
		s.held = map[int]*held{}
	}
	s.held[shard] = h
	return true
}

// end tells the work on a shard to end, and has none begin any more. It returns what waits until all has ended, for a time at most.
func (s *Shards) end(shard int) (await func(atMost time.Duration) error) {
	s.mu.Lock()
	h := s.held[shard]
	delete(s.held, shard)
	s.mu.Unlock()
	if h == nil {
		return func(time.Duration) error { return nil }
	}
	h.cancel()
	return func(atMost time.Duration) error {
		ended := make(chan struct{})
		go func() {
			h.working.Wait()
			close(ended)
		}()
		select {
		case <-ended:
			return nil
		case <-time.After(atMost):
			return fmt.Errorf("work on shard %d has not ended within %s", shard, atMost)
		}
	}
}
