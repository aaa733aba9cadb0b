package pending

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/internal/registered"
)

// slowly answers like asker, takes a while, and notes about whom.
type slowly struct {
	*asker
	w     *world
	takes time.Duration
	about map[string]int
	last  string
	held  bool
}

func (s *slowly) Question(_ context.Context, key client.ObjectKey) ([]byte, error) {
	s.last = key.Name
	return nil, nil
}

func (s *slowly) Claims(ctx context.Context, r []byte) (*inplace.Claims, error) {
	s.about[s.last]++
	s.w.Clock.Step(s.takes)
	if s.w.view.mu.TryLock() {
		s.w.view.mu.Unlock()
	} else {
		s.held = true
	}
	return s.asker.Claims(ctx, r)
}

// own has the Machines of some names want what refit makes by itself.
type own struct{ theirs, refits fieldset.Change }

func (o own) Difference(_ context.Context, key client.ObjectKey) (fieldset.Change, error) {
	if strings.HasPrefix(key.Name, "z") {
		return o.refits, nil
	}
	return o.theirs, nil
}

// owners is a world with a registered extension, and with MachineDeployments of one Machine each, which want what refit makes by itself if their name begins
// with z.
func owners(t *testing.T, takes time.Duration, names ...string) (*world, *slowly) {
	refits := newWorld(t, outside, append(fleet(sysctl), worker("w1", outdated))...)
	mine, err := refits.view.Owners.Differences.Difference(t.Context(), client.ObjectKeyFromObject(worker("w1")))
	require.NoError(t, err)
	registration := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "disks", UID: "uid-disks", Generation: 1}}
	objects := append(fleet(command), registration, worker("w1"))
	for _, name := range names {
		objects = append(objects, deployment1(func(md *clusterv1.MachineDeployment) { md.Name = "md-" + name }), worker(name, outdated, func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineDeploymentNameLabel] = "md-" + name
			m.OwnerReferences[0].Name = "ms-" + name
		}))
	}
	w := newWorld(t, outside, objects...)
	change, err := w.view.Owners.Differences.Difference(t.Context(), client.ObjectKeyFromObject(worker("w1")))
	require.NoError(t, err)
	s := &slowly{asker: &asker{change: change, claims: true}, w: w, takes: takes, about: map[string]int{}}
	w.view.Owners.Registered, w.view.Owners.Asker = &registered.Registry{Client: w, Live: w}, s
	w.view.Owners.Differences = own{change, mine}
	return w, s
}

func (w *world) says(deployment string) string {
	p := w.shown("MachineDeployment", deployment)
	if p == nil {
		return "nothing"
	}
	return p.Status.Conditions[0].Reason + ": " + p.Status.Conditions[0].Message
}

// TestNoViewWaitsForARegisteredUpdater has one that takes its time: nobody waits for it but who asks it, and its answer has the view looked at again.
func TestNoViewWaitsForARegisteredUpdater(t *testing.T) {
	w, s := owners(t, 12*time.Second, "a", "b", "c", "d")
	w.view.woken = make(chan event.GenericEvent, 4)
	require.Equal(t, refresh, w.Reconcile(w.view, "c1").RequeueAfter)
	require.Empty(t, s.about, "a view asks nobody")
	require.Contains(t, w.says("md-a"), "they have not been asked yet")

	w.answered()
	require.False(t, s.held, "the view's lock is held while an extension is asked")
	require.Len(t, w.view.woken, 4)
	require.Equal(t, "c1", (<-w.view.woken).Object.GetName())
	w.Reconcile(w.view, "c1")
	for _, name := range []string{"md-a", "md-b", "md-c", "md-d"} {
		require.Contains(t, w.says(name), "InPlace")
	}

	// The same answer is no news.
	for range 3 {
		<-w.view.woken
	}
	w.Clock.Step(askAgain)
	w.answered()
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}, s.about)
	require.Empty(t, w.view.woken)
}

// TestEachOwnerIsAskedInItsTurn has no time for more than one question with each view.
func TestEachOwnerIsAskedInItsTurn(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	w, s := owners(t, 0, names...)
	for range 5 * len(names) {
		w.Reconcile(w.view, "c1")
		require.True(t, w.view.askNext(t.Context()))
		w.Clock.Step(refresh)
	}
	for _, name := range names {
		require.InDelta(t, 5, s.about[name], 1, "%s of %v", name, s.about)
	}
}

// TestWhatWaitsForAnAnswerHidesNothing has one owner want what refit makes by itself, behind many of which only a registered updater may claim the change.
func TestWhatWaitsForAnAnswerHidesNothing(t *testing.T) {
	var names []string
	for i := range 45 {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	w, _ := owners(t, 0, append(names, "z")...)
	for range 10 {
		w.Reconcile(w.view, "c1")
		w.Clock.Step(refresh)
	}
	require.Contains(t, w.says("md-z"), "InPlace")
}

// TestWhatIsReadAgainHidesNothing has more owners that can't be read than a view may read, and one behind them.
func TestWhatIsReadAgainHidesNothing(t *testing.T) {
	var names []string
	for i := range 3 * readAtOnce {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	w, _ := owners(t, 0, append(names, "z")...)
	w.view.Owners.Differences = unreadable{w.view.Owners.Differences}
	for range 30 {
		w.Reconcile(w.view, "c1")
		w.Clock.Step(refresh)
	}
	require.Contains(t, w.says("md-z"), "InPlace")
}

// unreadable are differences that are not known but of some.
type unreadable struct{ Differences }

func (u unreadable) Difference(ctx context.Context, key client.ObjectKey) (fieldset.Change, error) {
	if strings.HasPrefix(key.Name, "a") {
		return nil, context.DeadlineExceeded
	}
	return u.Differences.Difference(ctx, key)
}

// TestWhatNobodyWantsIsNotAsked has the change of an owner go away while it waits for an answer.
func TestWhatNobodyWantsIsNotAsked(t *testing.T) {
	w, s := owners(t, 0, "a")
	w.Reconcile(w.view, "c1")
	require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "a", &clusterv1.Machine{})))
	w.Clock.Step(refresh)
	w.Reconcile(w.view, "c1")
	w.answered()
	require.Empty(t, s.about)
}

// TestAPanicOverAnAnswerEndsNothing has the answer of an extension find a fault of refit's.
func TestAPanicOverAnAnswerEndsNothing(t *testing.T) {
	w, _ := owners(t, 0, "a")
	w.view.Owners.Asker = panicking{}
	w.Reconcile(w.view, "c1")
	w.answered()
	w.Clock.Step(refresh)
	w.Reconcile(w.view, "c1")
	require.Contains(t, w.says("md-a"), "for a fault of refit's")
}

type panicking struct{}

func (panicking) Question(context.Context, client.ObjectKey) ([]byte, error) { return nil, nil }

func (panicking) Claims(context.Context, []byte) (*inplace.Claims, error) { panic("out of range") }

// TestWhatRefitCannotReachIsReplaced as hooks have it, be it refit that would make the change, or another updater.
func TestWhatRefitCannotReachIsReplaced(t *testing.T) {
	w, _ := owners(t, 0, "a", "z")
	access := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: policykindtest.Namespace, Name: "all"}}
	access.Spec.MachineSelector.MatchLabels = map[string]string{"pool": "other"}
	require.NoError(t, w.Create(t.Context(), access))
	w.view.Owners.Accesses = nodeaccess.Machines{Client: w}
	look := func() {
		w.Clock.Step(refresh)
		w.Reconcile(w.view, "c1")
		w.answered()
		w.Clock.Step(refresh)
		w.Reconcile(w.view, "c1")
	}
	look()
	for _, name := range []string{"md-a", "md-z"} {
		require.Contains(t, w.says(name), "Replacement")
		require.Contains(t, w.says(name), "refit does not know how to reach its node")
	}
	access.Spec.MachineSelector.MatchLabels = nil
	require.NoError(t, w.Update(t.Context(), access))
	look()
	for _, name := range []string{"md-a", "md-z"} {
		require.Contains(t, w.says(name), "InPlace")
	}
}

// TestNobodyIsAskedAboutWhatIsPaused as Cluster API asks nobody.
func TestNobodyIsAskedAboutWhatIsPaused(t *testing.T) {
	for name, pause := range map[string]func(*world, bool){
		"an annotation of the owner": func(w *world, on bool) {
			policykindtest.Change(w.World, "md-a", &clusterv1.MachineDeployment{}, func(md *clusterv1.MachineDeployment) {
				md.Annotations = nil
				if on {
					md.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
				}
			})
		},
		"the owner's spec": func(w *world, on bool) {
			policykindtest.Change(w.World, "md-a", &clusterv1.MachineDeployment{}, func(md *clusterv1.MachineDeployment) {
				md.Spec.Paused = &on
			})
		},
		"the Cluster": func(w *world, on bool) {
			policykindtest.Change(w.World, "c1", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = &on })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := owners(t, 0, "a")
			pause(w, true)
			w.Reconcile(w.view, "c1")
			w.answered()
			require.Empty(t, s.about)
			st := w.shown("MachineDeployment", "md-a").Status
			require.Equal(t, refitv1.PendingUnknown, st.Causes[0].Cause)
			require.Contains(t, st.List[0].Reason, "Paused")
			pause(w, false)
			w.Clock.Step(refresh)
			w.Reconcile(w.view, "c1")
			w.answered()
			require.Equal(t, map[string]int{"a": 1}, s.about)
		})
	}
}

// TestALabelOfTheClusterIsSeen by which a registration comes to be for its machines, and ceases to.
func TestALabelOfTheClusterIsSeen(t *testing.T) {
	w, s := owners(t, 0, "a")
	also := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "nets", UID: "uid-nets", Generation: 1}}
	also.Spec.ClusterSelector.MatchLabels = map[string]string{"pool": "gpu"}
	require.NoError(t, w.Create(t.Context(), also))
	label := func(labels map[string]string) {
		policykindtest.Change(w.World, "c1", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Labels = labels })
		w.Clock.Step(again)
		w.Reconcile(w.view, "c1")
	}
	label(nil)
	require.Contains(t, w.says("md-a"), "it may be claimed by UpdaterRegistration disks, which")
	w.answered()
	label(map[string]string{"other": "a"})
	require.Contains(t, w.says("md-a"), "InPlace")
	label(map[string]string{"pool": "gpu"})
	require.Contains(t, w.says("md-a"), "it may be claimed by UpdaterRegistration disks, then nets")
	w.answered()
	require.Equal(t, 2, s.about["a"], "what it rested on has changed")
	label(map[string]string{"pool": "gpu"})
	require.Contains(t, w.says("md-a"), "InPlace")
}
