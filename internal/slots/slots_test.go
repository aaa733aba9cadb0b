package slots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func update(w *world, name string) *refitv1.MachineUpdate {
	return get(w, name, &refitv1.MachineUpdate{})
}

func machineOf(w *world, name string) *clusterv1.Machine { return get(w, name, &clusterv1.Machine{}) }

func TestWhoHasASlotKeepsIt(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	require.Empty(t, w.take("w00"))
	w.edit("w00", fails)
	w.fail = func(string, any) error { return errDown }
	w.slots.Limits = Limits{Workers: intstr.FromString("misread")}
	w.slots.Client = reader{w, true}
	full, err := w.slots.Take(t.Context(), machineOf(w, "w00"), update(w, "w00"), nil, func() error {
		t.Error("it is not written again")
		return nil
	})
	require.NoError(t, err)
	require.Nil(t, full)
}

func TestAFailedUpdateKeepsItsSlotUntilSomebodyAcknowledgesIt(t *testing.T) {
	w := newWorld(t, atMost(1), pool(3)...)
	require.Empty(t, w.take("w00"))
	w.edit("w00", fails)
	w.clock.SetTime(start.Add(24 * time.Hour))
	require.Contains(t, w.take("w01"), "w00 (its update failed; refit retry or refit abandon w00)")
	w.edit("w00", lets)
	require.Empty(t, w.take("w01"))
	require.Equal(t, []string{"w01"}, w.holding(refitv1.WorkerRole))
}

func TestAMachineThatIsGoneHoldsNoSlot(t *testing.T) {
	again := worker("w00")
	again.UID = "another"
	for name, tc := range map[string]struct {
		after func(w *world)
		free  bool
	}{
		"both are gone":             {func(w *world) { w.remove("w00") }, true},
		"its MachineUpdate remains": {func(w *world) { w.apply(change{key: keyOf(again, keyed("w00"))}) }, true},
		"it was made again":         {func(w *world) { w.put(again.DeepCopy()) }, true},
		"it is being deleted":       {func(w *world) { w.put(worker("w00", deleting)) }, false},
		"it goes by another label":  {func(w *world) { w.put(worker("w00", func(m *clusterv1.Machine) { m.Labels = nil })) }, false},
		"the MachineUpdate has no label": {func(w *world) {
			w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.Labels = nil })
		}, false},
		"it says another cluster": {func(w *world) {
			w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.Labels[clusterv1.ClusterNameLabel] = "c2" })
		}, false},
		"neither has a label": {func(w *world) {
			w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.Labels = nil })
			w.put(worker("w00", func(m *clusterv1.Machine) { m.Labels = nil }))
		}, false},
		"the MachineUpdate names no owner": {func(w *world) {
			w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.OwnerReferences = nil })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(2)...)
			require.Empty(t, w.take("w00"))
			tc.after(w)
			require.Equal(t, tc.free, w.take("w01") == "")
			w.lead(w.slots.Limits)
			if !tc.free {
				require.NotEmpty(t, w.take("w01"), "and to a new leader")
			}
		})
	}
}

func TestWhatCannotBeToldGivesNoSlot(t *testing.T) {
	gets := func(what any) func(string, any) error {
		return func(verb string, obj any) error {
			if verb == "get" && fmt.Sprintf("%T", obj) == fmt.Sprintf("%T", what) {
				return errDown
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		given func(w *world)
		peers Peers
		want  string
	}{
		"the API server does not answer":  {func(w *world) { w.fail = func(string, any) error { return errDown } }, nil, "list MachineUpdates in namespace fleet: it is down"},
		"nor the workload cluster":        {func(*world) {}, PeersFunc(func(context.Context) (map[string]string, error) { return nil, errDown }), "(Cluster fleet/c1): it is down"},
		"the cache has no MachineUpdates": {func(w *world) { w.slots.Client = noGet{w.slots.Client} }, nil, "read MachineUpdate fleet/w0"},
		"the cache has no Machines":       {func(w *world) { w.slots.Client = noList{w.slots.Client, &clusterv1.MachineList{}} }, nil, "list the Machines of Cluster fleet/c1: it is down"},
		"is the other Machine there": {func(w *world) {
			require.Empty(w, w.take("w01"))
			w.apply(change{key: keyOf(&clusterv1.Machine{}, keyed("w01"))})
			w.fail = gets(&clusterv1.Machine{})
		}, nil, "read Machine fleet/w01: it is down"},
		"is the other MachineUpdate there": {func(w *world) {
			require.Empty(w, w.take("w01"))
			w.freeze()
			w.watch(0)
			w.fail = gets(&refitv1.MachineUpdate{})
		}, nil, "read MachineUpdate fleet/w01: it is down"},
		"a limit": {func(w *world) { w.slots.Limits = Limits{Workers: intstr.FromString("misread")} }, nil, "take a slot: at most misread workers out at once"},
		"another Machine of the name": {func(w *world) {
			m := worker("w00")
			m.UID = "another"
			w.put(m)
		}, nil, "take a slot: MachineUpdate fleet/w00 is not that of Machine fleet/w00 with uid another"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(3), pool(3)...)
			tc.given(w)
			peers := tc.peers
			if peers == nil {
				peers = w
			}
			full, err := w.slots.Take(t.Context(), machineOf(w, "w00"), update(w, "w00"), peers, func() error {
				t.Error("it is not written")
				return nil
			})
			require.ErrorContains(t, err, tc.want)
			require.Nil(t, full)
			require.Equal(t, tc.peers != nil, errors.Is(err, ErrPeers))
		})
	}
}

func TestPeersAreNeeded(t *testing.T) {
	w := newWorld(t, atMost(1), pool(1)...)
	_, err := w.slots.Take(t.Context(), machineOf(w, "w00"), update(w, "w00"), nil, func() error { return nil })
	require.ErrorContains(t, err, "nobody tells who else disturbs")
}

func TestTheWorkloadClusterIsAskedNowAndThen(t *testing.T) {
	w := newWorld(t, atMost(1), pool(3)...)
	w.held = map[string]string{"node-w02": "x"}
	for range 100 {
		require.Contains(t, w.take("w00"), "w02 (held by x)")
		w.clock.SetTime(w.clock.Now().Add(10 * time.Millisecond))
	}
	require.Equal(t, 1, w.asked)
	w.clock.SetTime(w.clock.Now().Add(peersFor))
	w.held = nil
	require.Empty(t, w.take("w00"))
	require.Equal(t, 2, w.asked)
	w.clock.SetTime(w.clock.Now().Add(peersFor))
	for range 100 {
		require.NotEmpty(t, w.take("w01"))
	}
	require.Equal(t, 2, w.asked, "not while no slot is free anyhow")
}

func TestAWorkloadClusterThatDoesNotAnswerIsNotAskedAgainAtOnce(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	asked, answer := 0, errDown
	peers := PeersFunc(func(context.Context) (map[string]string, error) { asked++; return nil, answer })
	take := func(ctx context.Context) error {
		_, err := w.slots.Take(ctx, machineOf(w, "w00"), update(w, "w00"), peers, func() error { return nil })
		return err
	}
	require.ErrorIs(t, take(t.Context()), ErrPeers)
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	require.ErrorIs(t, take(t.Context()), errDown)
	require.Equal(t, 1, asked)
	w.clock.SetTime(w.clock.Now().Add(peersFor))

	ctx, cancel := context.WithCancel(t.Context())
	peers = func(context.Context) (map[string]string, error) { cancel(); return nil, context.Canceled }
	require.ErrorIs(t, take(ctx), context.Canceled)
	w.clock.SetTime(w.clock.Now().Add(time.Millisecond))
	peers = func(context.Context) (map[string]string, error) { return nil, nil }
	require.NoError(t, take(t.Context()), "that one gave up says nothing about the cluster")
}

// TestFullAtOnce: many who wait do not count the cluster again each time, and who gets a slot does.
func TestFullAtOnce(t *testing.T) {
	w := newWorld(t, atMost(1), pool(3)...)
	lists := &counter{Reader: w.slots.Client}
	w.slots.Client = lists
	require.Empty(t, w.take("w00"))
	lists.n = 0
	for range 100 {
		require.NotEmpty(t, w.take("w01"))
		w.clock.SetTime(w.clock.Now().Add(5 * time.Millisecond))
	}
	require.Equal(t, 1, lists.n, "Machines, and MachineUpdates not at all")
	w.edit("w00", lets)
	w.clock.SetTime(w.clock.Now().Add(censusFor))
	require.Empty(t, w.take("w01"))
	w.clock.SetTime(w.clock.Now().Add(time.Millisecond))
	require.NotEmpty(t, w.take("w02"), "what was counted before that is void")
}

func TestWhoWaitsCanGiveUp(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	_, err := w.tryTake("w00", func(*refitv1.MachineUpdate) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.slots.Take(ctx, machineOf(w, "w01"), update(w, "w01"), w, func() error { t.Error("written"); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "fleet")
		return nil
	})
	require.NoError(t, err)
}

// TestManyAtOnce has all ask at the same time, with a cache that knows nothing of it, in two clusters.
func TestManyAtOnce(t *testing.T) {
	const n, limit = 40, 7
	objects := pool(n)
	for i := range n {
		name := fmt.Sprintf("x%02d", i)
		objects = append(objects, all(worker(name, elsewhere))...)
	}
	objects = append(objects, all(controlPlane("a"), controlPlane("b"), controlPlane("c"))...)
	w := newWorld(t, atMost(limit), objects...)
	w.freeze()
	quiet := PeersFunc(func(context.Context) (map[string]string, error) { return nil, nil })
	var wg sync.WaitGroup
	errs := make(chan error, 3*n)
	ask := func(name string) {
		wg.Go(func() {
			mu := update(w, name)
			_, err := w.slots.Take(t.Context(), machineOf(w, name), mu, quiet, func() error {
				holds(mu)
				return w.update(mu)
			})
			errs <- err
		})
	}
	for i := range n {
		ask(fmt.Sprintf("w%02d", i))
		ask(fmt.Sprintf("x%02d", i))
	}
	for _, name := range []string{"a", "b", "c"} {
		ask(name)
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, w.holding(refitv1.WorkerRole), 2*limit)
	require.Len(t, w.holding(refitv1.ControlPlaneRole), 1)
}

// TestTheSameStateGivesTheSameMessage, whatever was asked before.
func TestTheSameStateGivesTheSameMessage(t *testing.T) {
	w := newWorld(t, atMost(1), append(pool(3), all(controlPlane("a", ill), controlPlane("b", ill), controlPlane("c"))...)...)
	w.put(worker("w00", notReady))
	w.held = map[string]string{"node-w00": "x", "node-a": "x"}
	first := w.take("w01")
	for range 50 {
		w.clock.SetTime(w.clock.Now().Add(100 * time.Millisecond))
		require.NotEmpty(t, w.take("c"))
		require.Equal(t, first, w.take("w01"))
	}
}
