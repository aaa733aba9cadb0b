package slots

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// fleet is a cluster in which things happen one after the other.
type fleet struct {
	*world
	t      *rapid.T
	limits Limits
	names  []string
	// late are writes that were not answered, and may still be made.
	late []*refitv1.MachineUpdate
	uids int
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{t: t, limits: atMost(int32(rapid.IntRange(1, 3).Draw(t, "limit")))}
	objects := all(controlPlane("a"), controlPlane("b"), controlPlane("c"))
	objects = append(objects, pool(5)...)
	for _, obj := range objects {
		if _, ok := obj.(*clusterv1.Machine); ok {
			f.names = append(f.names, obj.GetName())
		}
	}
	f.world = newWorld(t, f.limits, objects...)
	f.freeze()
	return f
}

// step does one thing, and time passes.
func (f *fleet) step() {
	f.clock.SetTime(f.clock.Now().Add(time.Duration(rapid.SampledFrom([]int{0, 1, 30000}).Draw(f.t, "ms")) * time.Millisecond))
	name := rapid.SampledFrom(f.names).Draw(f.t, "who")
	what := rapid.SampledFrom([]string{
		"take", "take", "take", "take", "succeed", "fail", "abandon", "touch", "watch", "watch", "lead", "late", "remove", "replace",
	}).Draw(f.t, "what")
	mu := f.find(name)
	switch {
	case what == "watch":
		f.watch(rapid.IntRange(f.seen, len(f.log)).Draw(f.t, "seen"))
	case what == "lead":
		f.leads()
	case what == "late":
		f.arrive()
	case what == "replace":
		f.replace(name)
	case mu == nil:
	case what == "take":
		f.takes(name)
	case what == "remove":
		f.remove(name)
	case what == "fail":
		f.edit(name, fails)
	case what == "touch":
		f.edit(name, func(*refitv1.MachineUpdate) {})
	case mu.Status.Slot != nil:
		f.edit(name, lets)
	}
}

// find returns the MachineUpdate of a name, or nil.
func (f *fleet) find(name string) *refitv1.MachineUpdate {
	mu, _ := f.live[keyOf(&refitv1.MachineUpdate{}, keyed(name))].(*refitv1.MachineUpdate)
	return mu
}

// takes asks for a slot. The write is made and answered, or not answered, or not made, or made later, or somebody else is faster.
func (f *fleet) takes(name string) {
	how := rapid.SampledFrom([]string{"made", "made", "made", "no answer", "lost", "late", "conflict"}).Draw(f.t, "write")
	had := f.find(name).Status.Slot != nil
	full, err := f.tryTake(name, func(mu *refitv1.MachineUpdate) error {
		require.False(f.t, had, "who has a slot writes nothing")
		switch how {
		case "no answer":
			require.NoError(f.t, f.update(mu))
			return errDown
		case "lost":
			return errDown
		case "late":
			f.late = append(f.late, mu.DeepCopy())
			return errDown
		case "conflict":
			f.edit(name, func(*refitv1.MachineUpdate) {})
		}
		return nil
	})
	if how == "made" {
		require.NoError(f.t, err)
	}
	if had {
		require.Nil(f.t, full)
	}
}

// arrive has the oldest write that was not answered be made now. The API server makes none after a minute.
func (f *fleet) arrive() {
	if len(f.late) == 0 {
		return
	}
	mu := f.late[0]
	f.late = f.late[1:]
	if t, ok := f.slots.cluster(keyed("c1")).taken[mu.Name]; ok && f.clock.Since(t.begun) < time.Minute {
		_ = f.update(mu)
	}
}

// leads has another replica lead. Its cache may be behind that of the one before. Of that one nothing is under way any more.
func (f *fleet) leads() {
	f.late = nil
	f.lead(f.limits)
	f.watch(rapid.IntRange(0, len(f.log)).Draw(f.t, "seen"))
}

// replace makes a Machine again that is gone, or has it be deleted and made again.
func (f *fleet) replace(name string) {
	f.remove(name)
	m := worker(name)
	if len(name) == 1 {
		m = controlPlane(name)
	}
	f.uids++
	m.UID = types.UID(fmt.Sprintf("machine-%s-%d", name, f.uids))
	for _, obj := range all(m) {
		f.put(obj)
	}
}

// limited holds what is promised.
func (f *fleet) limited() {
	workers := f.holding(refitv1.WorkerRole)
	require.LessOrEqual(f.t, len(workers), f.limits.Workers.IntValue(), "workers: %v", workers)
	controlPlanes := f.holding(refitv1.ControlPlaneRole)
	require.LessOrEqual(f.t, len(controlPlanes), 1, "control planes: %v", controlPlanes)
}

// TestNeverTooMany: whatever happens to updates, writes, caches, Machines and leaders, never more workers have a slot than may,
// and never two control planes. And when all is over, and the cache knows it, whoever asks gets one.
func TestNeverTooMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.step()
			f.limited()
		}
		f.thaw()
		f.clock.SetTime(f.clock.Now().Add(settled))
		for _, name := range f.names {
			if mu := f.find(name); mu != nil && mu.Status.Slot != nil {
				f.edit(name, lets)
			}
		}
		for _, name := range []string{"a", "w00"} {
			f.replace("b")
			f.replace("c")
			f.replace(name)
			require.Empty(t, f.take(name))
		}
		f.limited()
	})
}
