package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Shards are those that this process holds. Nil stands for all there are: nobody else works.
type Shards struct {
	// Count is how many there are.
	Count int

	mu     sync.Mutex
	held   map[int]*held
	parked map[parked]int // what was asked for of shards that are not held, with the shard
	begins []func(ofShard func(namespace string) bool)
}

// held is a shard that is held.
type held struct {
	ctx     context.Context //nolint:containedctx // that of all that works on the shard
	cancel  context.CancelFunc
	working sync.WaitGroup
}

// parked is a request that waits until its shard is held.
type parked struct {
	queue *queue
	req   ctrl.Request
}

// OnAcquire has f called before the work on a shard begins, to forget what is known of its namespaces: others have worked on them meanwhile. It
// is for the time before anything is held.
func (s *Shards) OnAcquire(f func(ofShard func(namespace string) bool)) {
	if s != nil {
		s.begins = append(s.begins, f)
	}
}

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

// enter returns a context for work on a request, which ends when its shard is released, and what to call when the work has ended. If the shard
// is not held the request is parked, and ok is false.
func (s *Shards) enter(ctx context.Context, q *queue, req ctrl.Request) (_ context.Context, leave func(), ok bool) {
	shard := Of(req.Namespace, s.Count)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[shard]
	if h == nil {
		if s.parked == nil {
			s.parked = map[parked]int{}
		}
		s.parked[parked{q, req}] = shard
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

// acquire has the work on a shard begin.
func (s *Shards) acquire(shard int) {
	for _, f := range s.begins {
		f(func(namespace string) bool { return Of(namespace, s.Count) == shard })
	}
	s.mu.Lock()
	if s.held == nil {
		s.held = map[int]*held{}
	}
	h := &held{}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	s.held[shard] = h
	var due []parked
	for p, of := range s.parked {
		if of == shard {
			due = append(due, p)
			delete(s.parked, p)
		}
	}
	s.mu.Unlock()
	for _, p := range due {
		p.queue.add(p.req)
	}
}

// release ends the work on a shard, and returns when it has ended, or an error when it has not within a time.
func (s *Shards) release(shard int, within time.Duration) error {
	s.mu.Lock()
	h := s.held[shard]
	delete(s.held, shard)
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	h.cancel()
	ended := make(chan struct{})
	go func() {
		h.working.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(within):
		return fmt.Errorf("work on shard %d has not ended within %s", shard, within)
	}
}
