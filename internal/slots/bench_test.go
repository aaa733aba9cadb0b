package slots

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// fastCache answers as an informer does that need not copy: a fake client would be most of what is measured.
type fastCache struct {
	client.Reader
	machines []clusterv1.Machine
	updates  []refitv1.MachineUpdate
	byName   map[string]int
}

func (c *fastCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *clusterv1.MachineList:
		l.Items = append(l.Items, c.machines...)
	case *refitv1.MachineUpdateList:
		l.Items = append(l.Items, c.updates...)
	}
	return nil
}

func (c *fastCache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch o := obj.(type) {
	case *clusterv1.Machine:
		*o = c.machines[c.byName[key.Name]]
	case *refitv1.MachineUpdate:
		*o = c.updates[c.byName[key.Name]]
	}
	return nil
}

// large is a cluster of 5,000 workers of which some have a slot, and a worker that asks.
func large(b *testing.B, taken int) (*Slots, *clusterv1.Machine, *refitv1.MachineUpdate) {
	cache := &fastCache{byName: map[string]int{}}
	for i := range 5000 {
		cache.byName[fmt.Sprintf("w%04d", i)] = i
		m := worker(fmt.Sprintf("w%04d", i), inDomain(fmt.Sprint(i%3)))
		mu := of(m)
		mu.ResourceVersion = "7"
		if i < taken {
			holds(mu)
		}
		cache.machines, cache.updates = append(cache.machines, *m), append(cache.updates, *mu)
	}
	last := len(cache.machines) - 1
	w := newWorld(b, atMost(1000))
	w.slots.Client, w.slots.Live = cache, cache
	return w.slots, &cache.machines[last], &cache.updates[last]
}

// BenchmarkTake takes a slot in a cluster of 5,000 Machines.
func BenchmarkTake(b *testing.B) {
	for name, tc := range map[string]struct {
		taken int
		step  time.Duration
	}{
		"one is free":               {999, censusFor},
		"none is free":              {1000, censusFor},
		"none was free just before": {1000, time.Nanosecond},
	} {
		b.Run(name, func(b *testing.B) {
			s, machine, mu := large(b, tc.taken)
			now := start
			clock := &stepping{now: &now}
			s.Clock = clock
			nobody := PeersFunc(func(context.Context) (map[string]string, error) { return map[string]string{}, nil })
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(tc.step)
				full, err := s.Take(b.Context(), machine, mu, nobody, func() error { return nil })
				if err != nil || (full == nil) != (tc.taken < 1000) {
					require.NoError(b, err)
					require.Equal(b, tc.taken < 1000, full == nil)
				}
			}
		})
	}
}

// stepping is a clock that goes when it is told.
type stepping struct{ now *time.Time }

func (c *stepping) Now() time.Time                  { return *c.now }
func (c *stepping) Since(t time.Time) time.Duration { return c.now.Sub(t) }
