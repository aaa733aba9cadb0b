package changemanagement

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestAFailureCountsWhileItsClusterIsGone: a Cluster whose finalizer was taken away leaves its Machines, and what they did, behind.
func TestAFailureCountsWhileItsClusterIsGone(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(opened), failed, identified, func(mu *refitv1.MachineUpdate) {
		mu.Status.FinishedAt = &metav1.Time{Time: inside}
	}}}, map[string]func(*clusterv1.Machine){"x": inCluster("c9")}, saturdays("a", budget(refitv1.Budget{StopAfterFailures: 1})), cluster("c9", nil, nil))...)
	s := w.status()
	st, _ := w.show(s)
	require.NotNil(t, st.Ledger)
	require.False(t, w.ask("w").Open)

	require.NoError(t, w.Delete(t.Context(), get(w, "c9", &clusterv1.Cluster{})))
	w.Clock.SetTime(inside.Add(2 * time.Second))
	require.False(t, w.ask("w").Open, "the ledger has it")
	st, _ = w.show(s)
	require.NotNil(t, st.Ledger, "the failure is forgotten")
	w.Clock.SetTime(inside.Add(4 * time.Second))
	require.False(t, w.ask("w").Open, "stopAfterFailures")
}

// TestAMachineOfTwoClustersCountsOnce: labels say c1, and the spec says c2.
func TestAMachineOfTwoClustersCountsOnce(t *testing.T) {
	mixed := func(m *clusterv1.Machine) { m.Spec.ClusterName = "c2" }
	w := newWorld(t, cluster("c1", nil, nil), cluster("c2", nil, nil), worker("w1", mixed), update("w1", waiting), saturdays("a"))
	st, _ := w.show(w.status())
	require.EqualValues(t, 1, *st.SelectedMachines)
}

// TestAMachineIsSelectedByTheClusterOfItsSpec and not by that which its label names.
func TestAMachineIsSelectedByTheClusterOfItsSpec(t *testing.T) {
	mixed := func(m *clusterv1.Machine) { m.Spec.ClusterName = "c2" }
	w := newWorld(t, cluster("c1", map[string]string{"env": "prod"}, nil), cluster("c2", nil, nil), worker("w1", mixed), update("w1", waiting),
		saturdays("a", clustersOf(map[string]string{"env": "prod"})))
	st, _ := w.show(w.status())
	require.EqualValues(t, 0, *st.SelectedMachines)
}

// TestAStartCountsWhileItsClusterIsGone: it was seen by nobody before.
func TestAStartCountsWhileItsClusterIsGone(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(opened.Add(time.Minute)), identified}},
		map[string]func(*clusterv1.Machine){"x": inCluster("c9")}, saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1})), cluster("c9", nil, nil))...)
	require.False(t, w.ask("w").Open)
	require.NoError(t, w.Delete(t.Context(), get(w, "c9", &clusterv1.Cluster{})))
	w.show(w.status())
	w.Clock.SetTime(inside.Add(2 * time.Second))
	require.False(t, w.ask("w").Open, "maxStartsPerWindow")
}

// unlabelled is a reader that has a Namespace be without labels for its nth reads.
type unlabelled struct {
	client.Reader
	reads int
	at    func(n int) bool
}

func (u *unlabelled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := u.Reader.Get(ctx, key, obj, opts...)
	if meta, ok := obj.(*metav1.PartialObjectMetadata); ok && meta.Kind == "Namespace" {
		if u.reads++; u.at(u.reads) {
			meta.Labels = nil
		}
	}
	return err
}

// TestALabelThatIsTakenAwayForAMoment must not have a budget of the platform be forgotten for good: what a record is made by is what it is compared with.
func TestALabelThatIsTakenAwayForAMoment(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), update("w1", identified, started(opened)), update("w2", identified, waiting),
		namespace("fleet", map[string]string{"tier": "prod"}), platform(anytime("platform", budget(refitv1.Budget{MaxConcurrent: 1})), inProd))
	require.False(t, w.admit("w2").Open)
	w.edit("w1", func(mu *refitv1.MachineUpdate) { mu.Status.Message = "at work" })     // its record is made again
	u := &unlabelled{Reader: w.policies.cached, at: func(n int) bool { return n == 2 }} // after the namespace's policies were read
	w.policies.cached = u
	_, err := w.gate.books(t.Context(), "fleet")
	require.NoError(t, err)
	require.Positive(t, u.reads)
	u.at = func(int) bool { return false }
	for range 3 {
		w.Clock.SetTime(w.Clock.Now().Add(time.Minute))
		d := w.admit("w2")
		require.False(t, d.Open, "maxConcurrent of the platform, of which one is under way: %s", d.Message)
	}
}
