package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// queue puts a waiter at the end of the queue, as acquire does.
func queue(p *pool, address string) *waiter {
	w := &waiter{address: address, n: 1, granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.queued[address]++
	return w
}

func (w *waiter) done() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// TestPoolServesANewcomerAfterOneOfEachAddress: whatever the others have asked for before.
func TestPoolServesANewcomerAfterOneOfEachAddress(t *testing.T) {
	for _, addresses := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			p := newPool(1)
			require.NoError(t, p.acquire(t.Context(), "other0", 1, nil))
			var others []*waiter
			for i := range addresses * 200 {
				others = append(others, queue(p, fmt.Sprint("other", i%addresses)))
			}
			newcomer := queue(p, "newcomer")
			holder, served := "other0", map[string]int{}
			for !newcomer.done() {
				p.release(holder, 1)
				for i, w := range others {
					if w.done() {
						holder = w.address
						served[holder]++
						others = append(others[:i], others[i+1:]...)
						break
					}
				}
			}
			for address, n := range served {
				require.LessOrEqual(t, n, 1, address)
			}
		})
	}
}

// TestPoolForgetsWhoWasServed: when nobody waits, and before that those who do not wait when they are many.
func TestPoolForgetsWhoWasServed(t *testing.T) {
	p := newPool(1)
	w := queue(p, "a")
	queue(p, "a")
	p.grant()
	require.True(t, w.done())
	require.Len(t, p.served, 1)
	for i := range 3 * maxWaiting {
		p.serve(fmt.Sprint(i))
		require.LessOrEqual(t, len(p.served), 2*maxWaiting)
	}
	require.Contains(t, p.served, "a", "it waits")
	p.release("a", 1)
	require.Empty(t, p.waiting)
	require.Empty(t, p.served)
}

// TestPoolIsNotFilledByTwoAddresses: the newest request of the one with most gives way to others, and is refused.
func TestPoolIsNotFilledByTwoAddresses(t *testing.T) {
	p := newPool(1)
	require.NoError(t, p.acquire(t.Context(), "a", 1, nil))
	for range maxWaitingAddress - 1 {
		queue(p, "a")
		queue(p, "b")
	}
	first := queue(p, "b")
	refused := waiting(t, p, "a", 1)
	require.Len(t, p.waiting, maxWaiting)

	require.ErrorIs(t, p.acquire(t.Context(), "a", 1, nil), errBusy, "it has most itself")
	ctx, cancel := context.WithCancel(t.Context())
	newcomer := make(chan error, 1)
	go func() { newcomer <- p.acquire(ctx, "newcomer", 1, nil) }()
	require.ErrorIs(t, <-refused, errBusy, "the newest one gives way")
	require.False(t, first.done())
	p.mu.Lock()
	require.Len(t, p.waiting, maxWaiting)
	require.Equal(t, 1, p.queued["newcomer"])
	p.mu.Unlock()
	require.Empty(t, newcomer, "it waits")
	cancel()
	require.ErrorIs(t, <-newcomer, context.Canceled)
	require.Len(t, p.waiting, maxWaiting-1)
}

// TestPoolDoesNotTradePlaces: nobody gives way to an address that would then have more.
func TestPoolDoesNotTradePlaces(t *testing.T) {
	p := newPool(1)
	require.NoError(t, p.acquire(t.Context(), "a", 1, nil))
	for i := range maxWaiting {
		queue(p, fmt.Sprint(i))
	}
	require.ErrorIs(t, p.acquire(t.Context(), "newcomer", 1, nil), errBusy)
	require.Len(t, p.waiting, maxWaiting)
}

// TestArrivalsAreSearchedOnceForAllThatWait: how many ask makes no difference, and each gets its room.
func TestArrivalsAreSearchedOnceForAllThatWait(t *testing.T) {
	l, now := newLimits(), time.Now()
	l.now = func() time.Time { return now }
	l.small = newPool(5)
	slow := func(n int) (dropped func() int) {
		var all []*arrival
		for range n {
			a := &arrival{control: http.NewResponseController(httptest.NewRecorder()), address: "slow", began: now.Add(-slowAfter), pool: l.small, held: 1, cancel: func() {}}
			all = append(all, a)
		}
		l.arrivals = append(l.arrivals, all...)
		return func() (dropped int) {
			for _, a := range all {
				if a.dropped {
					dropped++
				}
			}
			return dropped
		}
	}
	require.NoError(t, l.small.acquire(t.Context(), "slow", 5, nil))
	for range 3 {
		queue(l.small, "right")
	}
	queue(l.small, "slow")
	dropped := slow(5)
	for range 1000 {
		l.drop(l.small)
	}
	require.Equal(t, 3, dropped(), "one for each that waits and holds less, by one search")
	now = now.Add(scanEvery - 1)
	l.drop(l.small)
	require.Equal(t, 3, dropped())
	now = now.Add(1)
	l.drop(l.small)
	require.Equal(t, 5, dropped(), "the next search")
	dropped = slow(2)
	l.drop(l.large)
	require.Zero(t, dropped(), "they hold nothing of that pool")
	now = now.Add(tooSlowAfter)
	l.small.waiting = l.small.waiting[3:]
	l.drop(l.small)
	require.Equal(t, 1, dropped(), "after a second for anybody, also for who holds as much")
}
