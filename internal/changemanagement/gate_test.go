package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
)

// staleReader is a cache that does not know yet what became of MachineUpdates.
type staleReader struct {
	client.Reader
	known *refitv1.MachineUpdateList
}

func (r *staleReader) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if list, ok := out.(*refitv1.MachineUpdateList); ok && r.known != nil {
		r.known.DeepCopyInto(list)
		return nil
	}
	return r.Reader.List(ctx, out, opts...)
}

// freeze has the gate's cache stay as it is now.
func (w *world) freeze() *staleReader {
	r := &staleReader{Reader: w.Client, known: &refitv1.MachineUpdateList{}}
	require.NoError(w.T, w.List(w.T.Context(), r.known))
	w.gate.Client = r
	return r
}

// newLeader replaces the gate by one that knows nothing yet but the same caches.
func (w *world) newLeader() {
	w.gate = &Gate{Policies: w.policies, Client: w.gate.Client, Live: w.gate.Live, Clock: w.Clock, Metrics: w.gate.Metrics}
}

// admitAll asks for n updates at once, and returns the names of those that were admitted.
func (w *world) admitAll(n int) []string {
	var wg sync.WaitGroup
	open := make([]bool, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			var d Decision
			d, errs[i] = w.tryAdmit(fmt.Sprintf("w%02d", i))
			open[i] = d.Open
		})
	}
	wg.Wait()
	require.NoError(w.T, errors.Join(errs...))
	var names []string
	for i, yes := range open {
		if yes {
			names = append(names, fmt.Sprintf("w%02d", i))
		}
	}
	return names
}

func twenty(edits ...func(*refitv1.MachineUpdate)) map[string]states {
	all := map[string]states{}
	for i := range 20 {
		all[fmt.Sprintf("w%02d", i)] = edits
	}
	return all
}

func TestTwentyAtOnceUnderABudgetOfThree(t *testing.T) {
	for name, tc := range map[string]struct {
		budget refitv1.Budget
		state  states
		want   int
		stale  bool
	}{
		"the cache knows":                        {refitv1.Budget{MaxConcurrent: 3}, nil, 3, false},
		"the cache does not know yet":            {refitv1.Budget{MaxConcurrent: 3}, nil, 3, true},
		"starts that the cache does not know":    {refitv1.Budget{MaxStartsPerWindow: 3}, nil, 3, true},
		"spaces that the cache does not know":    {refitv1.Budget{MinSpacing: "1m"}, nil, 1, true},
		"they wait, and the cache does not know": {refitv1.Budget{MaxConcurrent: 3}, states{waiting}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fleet(twenty(tc.state...), nil, saturdays("a", budget(tc.budget)))...)
			if tc.stale {
				w.freeze()
			}
			first := w.admitAll(20)
			require.Len(t, first, tc.want)
			if tc.state != nil {
				require.Equal(t, []string{"w00", "w01", "w02"}, first, "all are of one age, so the first by name")
			}
		})
	}
}

func TestWhatWasAdmittedCountsUntilTheCacheShowsItsEnd(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	cache := w.freeze()
	require.True(t, w.admit("w00").Open)
	w.edit("w00", ended)
	require.False(t, w.admit("w01").Open, "the cache knows neither the start nor the end")
	cache.known = nil
	require.True(t, w.admit("w01").Open)
}

func TestANewLeaderKnowsWhatTheLastOneAdmitted(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 3})))...)
	w.freeze()
	require.True(t, w.admit("w00").Open)
	require.True(t, w.admit("w01").Open)
	w.newLeader()
	again := w.admitAll(20)
	require.Subset(t, again, []string{"w00", "w01"}, "what is under way goes on")
	require.Len(t, again, 3)
	w.newLeader()
	other := "w10"
	if slices.Contains(again, other) { // any of them may be the third
		other = "w11"
	}
	require.False(t, w.ask(other).Open)
}

func TestANewLeaderThatCannotReadAdmitsNothing(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 3})))...)
	w.gate.Live = broken{}
	d, err := w.tryAdmit("w00")
	require.ErrorContains(t, err, "it is down")
	require.Nil(t, get(w, "w00", &refitv1.MachineUpdate{}).Status.Admission, d.Message)
	w.gate.Live = w.Client
	require.True(t, w.admit("w00").Open, "and later it can")
}

// broken is an API server that does not answer.
type broken struct{ client.Reader }

var errDown = errors.New("it is down")

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error { return errDown }
func (broken) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errDown
}

func TestWhatIsNotWrittenIsNotAdmitted(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	machine, mu := get(w, "w00", &clusterv1.Machine{}), get(w, "w00", &refitv1.MachineUpdate{})
	conflict := apierrors.NewConflict(schema.GroupResource{}, mu.Name, errDown)
	_, err := w.gate.Admit(t.Context(), machine, mu, func(refitv1.Admission) error { return conflict })
	require.ErrorIs(t, err, conflict)
	require.True(t, w.admit("w01").Open, "the slot is still free")
	written := false
	d, err := w.gate.Admit(t.Context(), machine, mu, func(refitv1.Admission) error { written = true; return nil })
	require.NoError(t, err)
	require.False(t, d.Open)
	require.False(t, written, "what is closed is not written")
}

func TestWhatMayBeWrittenIsCounted(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	machine, mu := get(w, "w00", &clusterv1.Machine{}), get(w, "w00", &refitv1.MachineUpdate{})
	_, err := w.gate.Admit(t.Context(), machine, mu, func(refitv1.Admission) error { return errDown })
	require.ErrorIs(t, err, errDown)
	require.False(t, w.admit("w01").Open, "nobody knows whether it was written")
	w.Clock.Step(settled + time.Second)
	require.True(t, w.admit("w01").Open, "the API server has not made it, and won't any more")
}

func TestWhatMayBeWrittenMayBeTriedAgain(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	machine, mu := get(w, "w00", &clusterv1.Machine{}), get(w, "w00", &refitv1.MachineUpdate{})
	_, err := w.gate.Admit(t.Context(), machine, mu, func(refitv1.Admission) error { return errDown })
	require.ErrorIs(t, err, errDown)
	require.True(t, w.admit("w00").Open)
	w.freeze()
	w.Clock.Step(settled + time.Second)
	require.False(t, w.admit("w01").Open, "now it is known to be written, however long the cache takes")
}

func TestANameThatIsUsedAgainHasNoStart(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	require.True(t, w.admit("w00").Open)
	old := get(w, "w00", &refitv1.MachineUpdate{})
	require.NoError(t, w.Delete(t.Context(), old))
	again := update("w00")
	again.UID = "another"
	require.NoError(t, w.Create(t.Context(), again))
	require.True(t, w.admit("w01").Open)
}

// TestOtherSpecsInMidRunFreeNothing has Cluster API ask for other specs while a node is worked on, which takes the admission away.
func TestOtherSpecsInMidRunFreeNothing(t *testing.T) {
	at := metav1.NewTime(closes.Add(-time.Hour))
	for name, begun := range map[string]refitv1.MachineUpdateStatus{
		"while it is drained": {Drain: &refitv1.DrainStatus{StartedAt: at}},
		"while it is changed": {ApplyingSince: &at},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
			require.True(t, w.admit("w00").Open)
			w.edit("w00", func(mu *refitv1.MachineUpdate) {
				mu.Status.Phase, mu.Status.Admission = refitv1.PhasePending, nil
				mu.Status.Slot, mu.Status.ApplyingSince, mu.Status.Drain = &refitv1.Slot{TakenAt: at}, begun.ApplyingSince, begun.Drain
			})
			require.False(t, w.admit("w01").Open)
			require.True(t, w.admit("w00").Open, "it goes on by itself")
		})
	}
}

func TestWhatIsTakenBackCountsNoMore(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	w.freeze()
	require.True(t, w.admit("w00").Open)
	w.gate.Forget(get(w, "w00", &refitv1.MachineUpdate{}))
	require.False(t, w.admit("w01").Open, "it still tells of its start")
	w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.Status.Starts, mu.Status.Admission = nil, nil })
	for range 2 {
		w.gate.Forget(get(w, "w00", &refitv1.MachineUpdate{}))
	}
	require.True(t, w.admit("w01").Open)
}

// TestTheWindowEndsWhileOthersAreAdmitted has one update wait until another one is written, which takes until after the window.
func TestTheWindowEndsWhileOthersAreAdmitted(t *testing.T) {
	w := newWorld(t, fleet(twenty(), nil, saturdays("a", budget(refitv1.Budget{MaxConcurrent: 3})))...)
	w.Clock.SetTime(closes.Add(-time.Second))
	writes, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := w.gate.Admit(t.Context(), get(w, "w00", &clusterv1.Machine{}), get(w, "w00", &refitv1.MachineUpdate{}), func(refitv1.Admission) error {
			close(writes)
			<-goOn
			return nil
		})
		require.NoError(t, err)
	})
	<-writes
	wg.Go(func() {
		d, err := w.tryAdmit("w01")
		require.NoError(t, err)
		require.False(t, d.Open, "the window has ended meanwhile: %s", d.Message)
	})
	time.Sleep(50 * time.Millisecond) // it waits for its turn
	w.Clock.SetTime(closes)
	close(goOn)
	wg.Wait()
}

func TestOverridesCountForOthers(t *testing.T) {
	w := newWorld(t, fleet(twenty(), map[string]func(*clusterv1.Machine){"w05": annotated(bypassKey, "digest-w05")}, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})))...)
	w.freeze()
	require.True(t, w.admit("w05").Open)
	require.False(t, w.admit("w01").Open, "it is under way, whatever let it start")
	require.InDelta(t, 1, testutil.ToFloat64(w.gate.Metrics.overrides.WithLabelValues("fleet", "c1", "bypass-change-management")), 0)
}

func TestWhatIsRecordedOfAnAdmission(t *testing.T) {
	for name, tc := range map[string]struct {
		policy  *refitv1.ChangeManagementPolicy
		machine *clusterv1.Machine
		want    refitv1.Admission
	}{
		"in a window": {
			saturdays("a"), controlPlane("w"), refitv1.Admission{
				Reason: string(schedule.Open), Message: "open until " + text(closes), Role: refitv1.ControlPlaneRole, Policies: []string{"a"},
				Window: &refitv1.Window{Start: &metav1.Time{Time: opened}, End: &metav1.Time{Time: closes}},
			},
		},
		"by an override": {
			never("a"), worker("w", annotated(bypassKey, "digest-w")), refitv1.Admission{
				Reason: string(schedule.Overridden), Role: refitv1.WorkerRole, Policies: []string{"a"},
				Message: "change management is bypassed for this change; bypass-change-management=digest-w on Machine w",
			},
		},
		"without a policy": {
			of("other", anytime("a")), worker("w"), refitv1.Admission{
				Reason: string(schedule.Open), Role: refitv1.WorkerRole, Policies: []string{}, Message: "no policy selects the machine",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), tc.policy, tc.machine, update("w"))
			w.Clock.SetTime(inside.Add(999 * time.Millisecond))
			var got refitv1.Admission
			_, err := w.gate.Admit(t.Context(), tc.machine, update("w"), func(a refitv1.Admission) error { got = a; return nil })
			require.NoError(t, err)
			tc.want.AdmittedAt = metav1.NewTime(inside)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestTheGateNeedsThePoliciesAndTheCluster(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {}}, nil)...)
	w.gate.Policies = NewPolicies(w, w, w.Clock)
	_, err := w.tryAdmit("w")
	require.ErrorIs(t, err, policykind.ErrUnread)
	w = newWorld(t, worker("w"), update("w"))
	_, err = w.tryAdmit("w")
	require.ErrorContains(t, err, "Cluster fleet/c1")
}
