package webhook

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// errBusy is returned when more is asked of a pool than it lets wait.
var errBusy = errors.New("refit is busy with other requests; ask again")

// How many requests wait for a pool: all together, and those of one address. They hold little, since nothing of their bodies
// has been read, or their bodies are counted.
const (
	maxWaiting        = 2048
	maxWaitingAddress = maxWaiting / 2
)

// pool is an amount of something that requests share. When it is used up they wait, and what is given back goes to the address
// that holds the least, of those to the one that was served least recently: who asks for much waits for itself, and a newcomer
// waits for at most one request of each other address.
type pool struct {
	capacity int64

	mu      sync.Mutex
	used    int64
	held    map[string]int64 // by address
	queued  map[string]int   // by address
	waiting []*waiter        // the one that has waited longest first
	// served is when an address that had to wait was served last, as a count of turns. It is forgotten when nobody waits.
	served map[string]uint64
	turns  uint64
}

type waiter struct {
	address string
	n       int64
	granted chan struct{} // closed when it need not wait any more
	refused bool          // it gave way to another address; set before granted is closed
}

func newPool(capacity int64) *pool {
	return &pool{capacity: capacity, held: map[string]int64{}, queued: map[string]int{}, served: map[string]uint64{}}
}

// acquire takes n for an address, and waits for it until ctx ends. While it has to wait it calls full now and then, which may
// have somebody give something back. What is more than the capacity counts as all of it.
func (p *pool) acquire(ctx context.Context, address string, n int64, full func()) error {
	n = min(n, p.capacity)
	p.mu.Lock()
	if len(p.waiting) == 0 && p.used+n <= p.capacity {
		p.take(address, n)
		p.mu.Unlock()
		return nil
	}
	if p.queued[address] >= maxWaitingAddress || len(p.waiting) >= maxWaiting && !p.giveWay(address) {
		p.mu.Unlock()
		return errBusy
	}
	w := &waiter{address: address, n: n, granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.queued[address]++
	p.grant() // those who wait may all want more than there is
	p.mu.Unlock()
	if w.wait(ctx, full) {
		if w.refused {
			return errBusy
		}
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.refused {
		return ctx.Err()
	}
	for i, other := range p.waiting {
		if other == w {
			p.remove(i)
			p.grant()
			return ctx.Err()
		}
	}
	p.give(address, n) // it was granted at the same time
	return ctx.Err()
}

// wait waits until the waiter has what it asked for or is refused, or ctx ends, and reports whether ctx has not. Now and then it
// calls full.
func (w *waiter) wait(ctx context.Context, full func()) bool {
	again := make(<-chan time.Time)
	if full != nil {
		full()
		ticker := time.NewTicker(slowAfter)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-w.granted:
			return true
		case <-ctx.Done():
			return false
		case <-again:
			full()
		}
	}
}

// release gives n back.
func (p *pool) release(address string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(address, min(n, p.capacity))
}

// inUse returns how much is taken.
func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// heldBy returns how much an address has taken.
func (p *pool) heldBy(address string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[address]
}

// wanted returns, for each waiter, how much its address has taken, the least first.
func (p *pool) wanted() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var held []int64
	for _, w := range p.waiting {
		held = append(held, p.held[w.address])
	}
	slices.Sort(held)
	return held
}

func (p *pool) take(address string, n int64) {
	p.used += n
	p.held[address] += n
}

func (p *pool) give(address string, n int64) {
	p.used -= n
	if p.held[address] -= n; p.held[address] == 0 {
		delete(p.held, address)
	}
	p.grant()
}

// grant gives what is left to those who wait, as far as it goes.
func (p *pool) grant() {
	for {
		best := -1
		for i, w := range p.waiting {
			if p.used+w.n <= p.capacity && (best < 0 || p.before(w.address, p.waiting[best].address)) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := p.waiting[best]
		p.remove(best)
		p.take(w.address, w.n)
		p.serve(w.address)
		close(w.granted)
	}
}

// before reports whether an address that waits comes before another one that has waited longer.
func (p *pool) before(address, other string) bool {
	if p.held[address] != p.held[other] {
		return p.held[address] < p.held[other]
	}
	return p.served[address] < p.served[other] // who was never served comes first
}

// serve notes that an address has had its turn.
func (p *pool) serve(address string) {
	if len(p.waiting) == 0 {
		return // remove has forgotten all
	}
	p.turns++
	p.served[address] = p.turns
	if len(p.served) > 2*maxWaiting { // at most maxWaiting of them wait
		maps.DeleteFunc(p.served, func(other string, _ uint64) bool { return p.queued[other] == 0 })
	}
}

// giveWay refuses the newest waiter of the address that has most of them, for another address that would still have no more of
// them than that one. It reports whether there was one.
func (p *pool) giveWay(address string) bool {
	most := 0
	for _, n := range p.queued {
		most = max(most, n)
	}
	if most <= p.queued[address]+1 {
		return false
	}
	for i, w := range slices.Backward(p.waiting) {
		if p.queued[w.address] == most {
			p.remove(i)
			w.refused = true
			close(w.granted)
			return true
		}
	}
	return false
}

// remove takes the waiter at i out of the queue.
func (p *pool) remove(i int) {
	w := p.waiting[i]
	p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
	if p.queued[w.address]--; p.queued[w.address] == 0 {
		delete(p.queued, w.address)
	}
	if len(p.waiting) == 0 {
		clear(p.served)
	}
}
