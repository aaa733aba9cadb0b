package slots

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestWhatTheCacheDoesNotKnowCounts(t *testing.T) {
	w := newWorld(t, atMost(2), pool(4)...)
	w.freeze()
	require.Empty(t, w.take("w00"))
	require.Empty(t, w.take("w01"))
	require.Contains(t, w.take("w02"), "w00 (updating), w01 (updating)")
	w.edit("w00", lets)
	require.NotEmpty(t, w.take("w02"), "the cache knows neither the slot nor its end")
	w.clock.SetTime(start.Add(time.Hour))
	require.NotEmpty(t, w.take("w02"), "however long that takes")
	require.Zero(t, w.getsLive)
	w.thaw()
	require.Empty(t, w.take("w02"))
	require.Empty(t, w.slots.cluster(keyed("c1")).taken["w00"], "what the cache knows is forgotten")
}

// TestTakenAgain: a cache that shows a slot that was given back since says nothing about the next one.
func TestTakenAgain(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	require.Empty(t, w.take("w00"))
	w.freeze()
	w.edit("w00", lets)
	released := len(w.log)
	require.Empty(t, w.take("w00"))
	require.NotEmpty(t, w.take("w01"))
	w.watch(released)
	require.Nil(t, w.cache[keyOf(update(w, "w00"), keyed("w00"))].(*refitv1.MachineUpdate).Status.Slot)
	require.NotEmpty(t, w.take("w01"), "the cache has seen the end of the first one")
}

func TestANewLeaderKnowsWhatTheLastOneGave(t *testing.T) {
	w := newWorld(t, atMost(2), pool(4)...)
	w.freeze()
	require.Empty(t, w.take("w00"))
	w.lead(w.slots.Limits)
	require.Empty(t, w.take("w01"))
	w.lead(w.slots.Limits)
	require.Contains(t, w.take("w02"), "w00 (updating), w01 (updating)")
	require.Contains(t, w.take("w03"), "w00 (updating), w01 (updating)")
}

func TestANewLeaderWhoseCacheKnowsNothingYet(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	require.Empty(t, w.take("w00"))
	w.lead(w.slots.Limits)
	w.freeze()
	w.watch(0)
	require.Contains(t, w.take("w01"), "workers: 1 of 2 nodes may be out", "it is not there, and counts")
	w.edit("w00", fails)
	require.Contains(t, w.take("w01"), "its update failed")
	w.edit("w00", lets)
	require.Empty(t, w.take("w01"))
}

func TestANamespaceIsReadOnce(t *testing.T) {
	w := newWorld(t, atMost(1), pool(4)...)
	lists := 0
	w.fail = func(verb string, _ any) error {
		if verb == "list" {
			lists++
		}
		return nil
	}
	for _, name := range []string{"w00", "w01", "w02"} {
		w.take(name)
	}
	require.Equal(t, 1, lists)
}

func conflict() error { return apierrors.NewConflict(updates, "w00", errors.New("modified")) }

func TestWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		free bool
	}{
		"a conflict":                {conflict(), true},
		"the MachineUpdate is gone": {apierrors.NewNotFound(updates, "w00"), true},
		"no answer":                 {context.DeadlineExceeded, false},
		"an internal error":         {apierrors.NewInternalError(errDown), false},
		"a wrapped conflict":        {fmt.Errorf("write the status: %w", conflict()), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(2)...)
			full, err := w.tryTake("w00", func(*refitv1.MachineUpdate) error { return tc.err })
			require.ErrorIs(t, err, tc.err)
			require.Nil(t, full)
			require.Equal(t, tc.free, w.take("w01") == "")
			if !tc.free {
				require.Empty(t, w.take("w00"), "itself it may try again")
			}
		})
	}
}

func TestAWriteThatPanicsMayHaveBeenMade(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	require.Panics(t, func() {
		_, _ = w.tryTake("w00", func(*refitv1.MachineUpdate) error { panic("somewhere below") })
	})
	require.NotEmpty(t, w.take("w01"))
}

// TestAConflictWithAnEarlierTry: the first try is written and not answered, and the second finds it.
func TestAConflictWithAnEarlierTry(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	w.freeze()
	stale := update(w, "w00")
	_, err := w.tryTake("w00", func(mu *refitv1.MachineUpdate) error {
		require.NoError(t, w.update(mu))
		return errDown
	})
	require.ErrorIs(t, err, errDown)
	_, err = w.slots.Take(t.Context(), machineOf(w, "w00"), stale, w, func() error { return w.update(stale) })
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NotEmpty(t, w.take("w01"), "the cache knows of neither")
	require.Equal(t, []string{"w00"}, w.holding(refitv1.WorkerRole))
}

func TestWritesWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		// what becomes of the write, and what else, before two minutes are over
		meanwhile func(w *world, mu *refitv1.MachineUpdate)
		early     bool // the slot is known to be free at once
		late      bool // and later
	}{
		"nothing happened":        {func(*world, *refitv1.MachineUpdate) {}, false, true},
		"it was made":             {func(w *world, mu *refitv1.MachineUpdate) { require.NoError(w, w.update(mu)) }, false, false},
		"something else was":      {func(w *world, _ *refitv1.MachineUpdate) { w.edit("w00", fails) }, true, true},
		"the machine has gone":    {func(w *world, _ *refitv1.MachineUpdate) { w.remove("w00") }, true, true},
		"the cache knows nothing": {func(w *world, _ *refitv1.MachineUpdate) { w.freeze(); w.watch(0) }, false, true},
		"it is made behind us":    {func(w *world, mu *refitv1.MachineUpdate) { w.freeze(); require.NoError(w, w.update(mu)) }, false, false},
		"it is over behind us": {func(w *world, mu *refitv1.MachineUpdate) {
			w.freeze()
			require.NoError(w, w.update(mu))
			w.edit("w00", lets)
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(3)...)
			var written *refitv1.MachineUpdate
			_, err := w.tryTake("w00", func(mu *refitv1.MachineUpdate) error { written = mu.DeepCopy(); return errDown })
			require.ErrorIs(t, err, errDown)
			tc.meanwhile(w, written)
			require.Equal(t, tc.early, w.take("w01") == "")
			w.clock.SetTime(start.Add(settled))
			if !tc.early {
				require.Equal(t, tc.late, w.take("w02") == "")
			}
		})
	}
}

func TestAWriteThatTakesLongMayBeMadeInTheEnd(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	_, err := w.tryTake("w00", func(*refitv1.MachineUpdate) error {
		w.clock.SetTime(start.Add(time.Hour))
		return errDown
	})
	require.ErrorIs(t, err, errDown)
	require.NotEmpty(t, w.take("w01"))
	w.clock.SetTime(start.Add(time.Hour + settled))
	require.Empty(t, w.take("w01"))
}

// TestAMachineUpdateMadeAnew: what was known of the one before it says nothing of it, whatever their resourceVersions.
func TestAMachineUpdateMadeAnew(t *testing.T) {
	for name, taken := range map[string]bool{"its slot counts": true, "without a slot it is free": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(2)...)
			w.freeze()
			require.Empty(t, w.take("w00"))
			again := update(w, "w00")
			again.UID, again.ResourceVersion = "again", "1"
			if !taken {
				lets(again)
			}
			w.apply(change{keyOf(again, keyed("w00")), again})
			w.thaw()
			require.Equal(t, !taken, w.take("w01") == "")
		})
	}
}

func TestResourceVersionsThatTellNoOrder(t *testing.T) {
	unordered := func(mu *refitv1.MachineUpdate) { mu.ResourceVersion = "later" }
	t.Run("of the one that asks", func(t *testing.T) {
		w := newWorld(t, atMost(1), pool(2)...)
		mu := update(w, "w00")
		unordered(mu)
		_, err := w.slots.Take(t.Context(), machineOf(w, "w00"), mu, w, func() error { t.Error("written"); return nil })
		require.ErrorContains(t, err, "the resourceVersion of MachineUpdate fleet/w00 tells no order")
	})
	for name, tc := range map[string]func(w *world){
		"in the cache": func(w *world) {
			require.Empty(w, w.take("w00"))
			unordered(w.cache[keyOf(&refitv1.MachineUpdate{}, keyed("w00"))].(*refitv1.MachineUpdate))
		},
		"on the API server": func(w *world) {
			require.Empty(w, w.take("w00"))
			w.freeze()
			w.watch(0)
			unordered(w.live[keyOf(&refitv1.MachineUpdate{}, keyed("w00"))].(*refitv1.MachineUpdate))
		},
		"of the leader before": func(w *world) {
			require.Empty(w, w.take("w00"))
			w.lead(w.slots.Limits)
			unordered(w.live[keyOf(&refitv1.MachineUpdate{}, keyed("w00"))].(*refitv1.MachineUpdate))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(2)...)
			tc(w)
			_, err := w.tryTake("w01", nil)
			require.ErrorContains(t, err, "tells no order")
		})
	}
}
