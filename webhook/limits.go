package webhook

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/capi-refit/refit/internal/jsonscan"
)

// The bounds of what requests hold and take. docs/install.md says what memory they come to, and config/manager grants it.
const (
	// MaxSmallBytes is what requests with bodies up to maxSmallBody hold together, while they arrive and until they are answered.
	MaxSmallBytes = 64 << 20
	// MaxLargeBytes is what the bodies of all others hold together.
	MaxLargeBytes = 64 << 20
	// MaxWork is the memory that small requests take together while they are judged, as it is estimated.
	MaxWork = 128 << 20
	// MaxLargeWork is what a large one takes, of which one is judged at a time.
	MaxLargeWork = workOfByte*MaxRequestBytes + workOfValue*jsonscan.MaxValues

	// What judging takes for each byte of a body, which is copied, and for each value, in bytes. Of what was measured it is the most.
	workOfByte, workOfValue = 10, 900

	// maxSmallBody is the largest body that counts as a small one. Most are below 20 KiB.
	maxSmallBody = 1 << 20
	// minHeld is what any request holds, in bytes: its headers, its goroutine and its first buffer.
	minHeld = 32 << 10
	// maxSmallWork is what judging a small request takes, as it is estimated. Those that take more are judged one at a time, so
	// that they leave processors and memory to the others.
	maxSmallWork = 4 << 20

	// bodyTimeout is how long a body may take to arrive. Cluster API sends it from the same cluster, in milliseconds.
	bodyTimeout = 5 * time.Second
	// slowAfter is when a body that has not arrived may be dropped for somebody who needs the room and holds less, and tooSlowAfter
	// is when for anybody.
	slowAfter    = 100 * time.Millisecond
	tooSlowAfter = time.Second
	// scanEvery is how often the bodies that arrive are searched for such ones, at most. It is less than slowAfter, after which a
	// waiter asks again, so that none is put off twice.
	scanEvery = slowAfter / 2
	// writeTimeout is how long an answer may take to be read.
	writeTimeout = 10 * time.Second
	// defaultTimeout bounds hooks that do not say how long they are waited for.
	defaultTimeout = 10 * time.Second
)

// limits share out what requests hold and take.
type limits struct {
	small, large *pool         // bytes that bodies hold
	work         *pool         // estimated bytes of what is judged
	heavy        *pool         // 1: what takes more than maxSmallWork
	patience     time.Duration // for how long a body may take to arrive

	mu       sync.Mutex
	arrivals []*arrival // in the order in which they have begun
	scanned  map[*pool]time.Time
	now      func() time.Time
}

func newLimits() *limits {
	return &limits{small: newPool(MaxSmallBytes), large: newPool(MaxLargeBytes), work: newPool(MaxWork), heavy: newPool(1),
		patience: bodyTimeout, scanned: map[*pool]time.Time{}, now: time.Now}
}

// workOf estimates what memory it takes to judge a body, in bytes: copies of it, and what its values become.
func workOf(s jsonscan.Shape, length int) int64 {
	return int64(workOfByte*length + workOfValue*s.Values)
}

// begin waits until a body may be judged, and returns the function that says that it has been. Small ones wait for other small
// ones, and large ones for the large one before them.
func (l *limits) begin(ctx context.Context, address string, work int64) (done func(), err error) {
	p, n := l.work, max(work, 8*minHeld)
	if work > maxSmallWork {
		p, n = l.heavy, 1
	}
	if err := p.acquire(ctx, address, n, nil); err != nil {
		return nil, err
	}
	return func() { p.release(address, n) }, nil
}

// arrival is a body that arrives. It holds bytes of the pool for small bodies or of that for large ones.
type arrival struct {
	limits  *limits
	control *http.ResponseController
	address string
	began   time.Time
	// ctx ends when the body has taken too long, nobody waits for it any more, or it is dropped for others.
	ctx    context.Context
	cancel context.CancelFunc

	scanner jsonscan.Scanner

	mu   sync.Mutex
	pool *pool
	held int64
	over bool // it has arrived, or is dropped
	// dropped reports that others needed the room. It is read after arrived.
	dropped bool
}

// arrive returns the arrival of a body, which holds minHeld.
func (l *limits) arrive(ctx context.Context, control *http.ResponseController, address string) (*arrival, error) {
	a := &arrival{limits: l, control: control, address: address, began: time.Now(), pool: l.small}
	a.ctx, a.cancel = context.WithTimeoutCause(ctx, l.patience, errSlow)
	if err := l.small.acquire(a.ctx, address, minHeld, func() { l.drop(l.small) }); err != nil {
		a.cancel()
		return nil, busy(a.ctx, err)
	}
	a.held = minHeld
	// A connection without deadlines, as in tests, is read until it ends.
	_ = control.SetReadDeadline(a.began.Add(l.patience))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals = append(l.arrivals, a)
	return a, nil
}

// busy returns why something could not be acquired: refit is busy, or the caller has gone.
func busy(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSlow) {
		return errBusy
	}
	return err
}

// hold has the arrival hold n bytes, which is more than it holds. Beyond maxSmallBody they are of the large ones' pool.
func (a *arrival) hold(n int64) error {
	from, had := a.pool, a.held // only hold changes them
	to, more := from, n-had
	if from == a.limits.small && n > maxSmallBody {
		to, more = a.limits.large, n
	}
	if err := to.acquire(a.ctx, a.address, more, func() { a.limits.drop(to) }); err != nil {
		return busy(a.ctx, err)
	}
	a.mu.Lock()
	a.pool, a.held = to, n
	a.mu.Unlock()
	if to != from {
		from.release(a.address, had)
	}
	return nil
}

// arrived says that the body is not read any further.
func (a *arrival) arrived() {
	a.limits.mu.Lock()
	if i := slices.Index(a.limits.arrivals, a); i >= 0 {
		a.limits.arrivals = slices.Delete(a.limits.arrivals, i, i+1)
	}
	a.limits.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.cancel()
}

// release gives back what the arrival holds.
func (a *arrival) release() { a.pool.release(a.address, a.held) }

// drop ends bodies that hold bytes of the pool, one for each that waits for some, those first that have been arriving for the
// longest time. Who holds as much as the one that waits is dropped later, so that an abusive client is not kept busy by its own
// requests. It does this for all that wait at once, and does nothing if it has just done so.
func (l *limits) drop(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now.Sub(l.scanned[p]) < scanEvery {
		return
	}
	l.scanned[p] = now
	wanted := p.wanted()
	for _, a := range l.arrivals {
		age := now.Sub(a.began)
		if len(wanted) == 0 || age < slowAfter {
			return
		}
		last := len(wanted) - 1
		switch {
		case age >= tooSlowAfter: // for anybody, so for who holds most
			if a.drop(p) {
				wanted = wanted[:last]
			}
		case p.heldBy(a.address) > wanted[0]:
			if a.drop(p) {
				wanted = wanted[1:]
			}
		}
	}
}

// drop ends the reading of the body if it holds bytes of the pool, and reports whether it has.
func (a *arrival) drop(p *pool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.pool != p {
		return false
	}
	a.over, a.dropped = true, true
	a.cancel()
	_ = a.control.SetReadDeadline(time.Unix(1, 0))
	return true
}
