package session

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// hall is a pool whose sessions run until they are told to end, and the keys that it has woken.
type hall struct {
	*Pool
	t     *testing.T
	mu    sync.Mutex
	woken []string
	ends  map[string]chan struct{}
	ended sync.WaitGroup
	close func()
}

func newHall(t *testing.T, most, mostOfCluster int) *hall {
	h := &hall{t: t, ends: map[string]chan struct{}{}}
	h.Pool = &Pool{Most: most, MostOfCluster: mostOfCluster, Wake: func(key types.NamespacedName) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.woken = append(h.woken, key.Name)
	}}
	h.start()
	return h
}

// start has the pool run until the test ends.
func (h *hall) start() {
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Start(ctx)
	}()
	require.Eventually(h.t, func() bool {
		h.Pool.mu.Lock()
		defer h.Pool.mu.Unlock()
		return h.base != nil
	}, timeout, tick)
	h.close = func() {
		cancel()
		<-done
	}
	h.t.Cleanup(h.close)
}

// begin begins the session of a key, "cluster/name", with an exclamation mark if it is urgent.
func (h *hall) begin(name string) bool {
	cluster, _, _ := strings.Cut(name, "/")
	end := make(chan struct{})
	h.ended.Add(1)
	began := h.Begin(h.t.Context(), key(cluster), key(name), strings.HasSuffix(name, "!"), func(ctx context.Context) {
		defer h.ended.Done()
		select {
		case <-end:
		case <-ctx.Done():
		}
	})
	if !began {
		h.ended.Done()
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[name] = end
	return true
}

// end ends the session of a key, and waits until the pool knows.
func (h *hall) end(name string) {
	h.mu.Lock()
	close(h.ends[name])
	delete(h.ends, name)
	h.mu.Unlock()
	require.Eventually(h.t, func() bool {
		h.Pool.mu.Lock()
		defer h.Pool.mu.Unlock()
		return h.sessions[key(name)] == nil
	}, timeout, tick)
}

func (h *hall) requireWoken(names ...string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.woken) >= len(names)
	}, timeout, tick)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(h.t, names, h.woken)
	h.woken = nil
}

func (h *hall) requireNobodyWoken() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Empty(h.t, h.woken)
}

const timeout, tick = 10 * time.Second, time.Millisecond

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func TestADarkClusterLeavesPlacesToOthers(t *testing.T) {
	h := newHall(t, 100, 10)
	for i := range 1000 {
		require.Equal(t, i < 10, h.begin(fmt.Sprintf("dark/%d", i)))
	}
	require.True(t, h.begin("well/1"), "at once")
	taken, waiting := h.Load()
	require.Equal(t, 11, taken)
	require.Equal(t, 990, waiting)
}

func TestClustersTakeTurns(t *testing.T) {
	h := newHall(t, 2, 2)
	for _, name := range []string{"a/1", "a/2"} {
		require.True(t, h.begin(name))
	}
	for _, name := range []string{"a/3", "a/4", "b/1", "b/2", "c/1"} {
		require.False(t, h.begin(name))
	}
	for _, step := range []struct{ ends, woken string }{{"a/1", "a/3"}, {"a/2", "b/1"}, {"a/3", "c/1"}, {"b/1", "a/4"}, {"c/1", "b/2"}} {
		h.end(step.ends)
		h.requireWoken(step.woken)
		require.True(t, h.begin(step.woken), "its place is kept")
	}
}

func TestWhatIsUrgentComesFirst(t *testing.T) {
	h := newHall(t, 1, 1)
	require.True(t, h.begin("a/1"))
	for _, name := range []string{"a/2", "a/3!", "a/4!"} {
		require.False(t, h.begin(name))
	}
	for _, step := range []struct{ ends, woken string }{{"a/1", "a/3!"}, {"a/3!", "a/4!"}, {"a/4!", "a/2"}} {
		h.end(step.ends)
		h.requireWoken(step.woken)
		require.True(t, h.begin(step.woken))
	}
}

// TestWhatBecomesUrgentComesFirst though it has waited among others.
func TestWhatBecomesUrgentComesFirst(t *testing.T) {
	h := newHall(t, 1, 1)
	require.True(t, h.begin("a/1"))
	for _, name := range []string{"a/2", "a/3"} {
		require.False(t, h.begin(name))
	}
	require.False(t, h.Begin(t.Context(), key("a"), key("a/3"), true, nil))
	h.end("a/1")
	h.requireWoken("a/3")
	_, waiting := h.Load()
	require.Equal(t, 1, waiting)
}

// TestWhoComesAgainIsNotCountedTwice: a key that waits may be looked at for other reasons.
func TestWhoComesAgainIsNotCountedTwice(t *testing.T) {
	h := newHall(t, 1, 1)
	require.True(t, h.begin("a/1"))
	require.False(t, h.begin("a/2"))
	require.False(t, h.begin("a/2"))
	h.Forgo(key("a/2"))
	_, waiting := h.Load()
	require.Equal(t, 1, waiting, "it has no place to give back, and waits on")
	h.end("a/1")
	h.requireWoken("a/2")
}

func TestAPlaceThatNobodyUsesIsTheNextOnes(t *testing.T) {
	h := newHall(t, 1, 1)
	require.True(t, h.begin("a/1"))
	require.False(t, h.begin("a/2"))
	require.False(t, h.begin("a/3"))
	h.end("a/1")
	h.requireWoken("a/2")
	h.Forgo(key("a/2"))
	h.requireWoken("a/3")
	require.True(t, h.begin("a/3"))
	h.end("a/3")
	h.requireNobodyWoken()
	require.Empty(t, h.sessions)
	require.Empty(t, h.clusters, "what is not needed is not kept")
}

func TestWhoIsAskedForMeanwhileIsWokenAtTheEnd(t *testing.T) {
	h := newHall(t, 1, 1)
	require.False(t, h.Running(key("a/1")))
	require.True(t, h.begin("a/1"))
	require.True(t, h.Running(key("a/1")))
	h.requireNobodyWoken()
	h.end("a/1")
	h.requireWoken("a/1")
	require.False(t, h.Running(key("a/1")))
}

func TestSessionsEndWithThePool(t *testing.T) {
	h := newHall(t, 2, 2)
	require.True(t, h.begin("a/1"))
	h.close()
	h.ended.Wait()
	require.False(t, h.begin("a/2"), "none begins any more")
	h.start() // which a process does once only
	h.requireWoken("a/2")
}

// TestSessionsHaveTheValuesOfWhoBeganThem: its logger, for example; and not its end.
func TestSessionsHaveTheValuesOfWhoBeganThem(t *testing.T) {
	h := newHall(t, 1, 1)
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "x"))
	got := make(chan any, 2)
	require.True(t, h.Begin(ctx, key("a"), key("a/1"), false, func(ctx context.Context) {
		cancel()
		got <- ctx.Value(name{})
		got <- ctx.Err()
	}))
	require.Equal(t, "x", <-got)
	require.Nil(t, <-got)
}
