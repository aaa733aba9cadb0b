package nodeaccess

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// twoViews are Machines by a cache and an API server that know different things. lists counts how often the latter was asked.
func twoViews(cached, live []client.Object) (m Machines, clock *clocktesting.FakeClock, lists *int) {
	lists, clock = new(int), clocktesting.NewFakeClock(managementtest.Start)
	counting := interceptor.NewClient(managementtest.New(live...), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*lists++
			return c.List(ctx, list, opts...)
		},
	})
	former := &Former{Clock: clock, since: clock.Now().Add(-formerFor)}
	return Machines{Client: managementtest.New(cached...), Live: counting, Former: former}, clock, lists
}

func accessOf(name string) *refitv1.NodeAccess {
	return &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}}
}

// TestACacheThatIsBehindReplacesNothing: what it lacks, the API server may have.
func TestACacheThatIsBehindReplacesNothing(t *testing.T) {
	m1 := func() *clusterv1.Machine { return managementtest.Machine("fleet", "m1", "c1") }
	labelled := managementtest.Machine("fleet", "m1", "c1", func(m *clusterv1.Machine) { m.Labels["rack"] = "b" })
	rackB := accessOf("b")
	rackB.Spec.MachineSelector.MatchLabels = map[string]string{"rack": "b"}
	for name, tc := range map[string]struct {
		cached, live []client.Object
		why, err     string
	}{
		"a NodeAccess":       {cached: []client.Object{m1()}, live: []client.Object{m1(), accessOf("all")}},
		"several":            {cached: []client.Object{m1()}, live: []client.Object{m1(), accessOf("all"), accessOf("both")}},
		"a label":            {cached: []client.Object{m1(), rackB.DeepCopy()}, live: []client.Object{labelled, rackB.DeepCopy()}},
		"an update":          {cached: []client.Object{m1()}, live: []client.Object{m1(), managementtest.MachineUpdate(m1())}, err: "was updated in place before"},
		"that it is gone":    {cached: []client.Object{m1()}, err: "not found"},
		"nothing: all agree": {cached: []client.Object{m1()}, live: []client.Object{m1()}, why: "no NodeAccess"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, _ := twoViews(tc.cached, tc.live)
			why, err := m.Without(t.Context(), "fleet", "m1", false)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.Empty(t, why)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.why == "", why == "", why)
			require.Contains(t, why, tc.why)
		})
	}
}

func TestAnAPIServerThatDoesNotAnswerReplacesNothing(t *testing.T) {
	m, _, _ := twoViews([]client.Object{managementtest.Machine("fleet", "m1", "c1")}, []client.Object{managementtest.Machine("fleet", "m1", "c1")})
	m.Live = interceptor.NewClient(m.Live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not now")
		},
	})
	why, err := m.Without(t.Context(), "fleet", "m1", false)
	require.ErrorContains(t, err, "not now")
	require.Empty(t, why)
}

// TestWhatTheAPIServerHasSaidHoldsForAMoment, until a NodeAccess changes.
func TestWhatTheAPIServerHasSaidHoldsForAMoment(t *testing.T) {
	objects := []client.Object{managementtest.Machine("fleet", "m1", "c1"), managementtest.Machine("fleet", "m2", "c1")}
	m, clock, lists := twoViews(objects, objects)
	ask := func(name string, asked int) {
		t.Helper()
		*lists = 0
		why, err := m.Without(t.Context(), "fleet", name, false)
		require.NoError(t, err)
		require.NotEmpty(t, why)
		require.Equal(t, asked, *lists)
	}
	ask("m1", 1)
	ask("m1", 0)
	ask("m2", 1)
	clock.Step(confirmedFor)
	ask("m1", 1)
	require.Len(t, m.Former.confirmed["fleet"], 1, "what is old is forgotten")
	m.Former.OnAdd(&refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab"}}, false)
	ask("m1", 0)
	m.Former.OnAdd(accessOf("one for others"), false)
	ask("m1", 1)

	// A NodeAccess that comes while the API server is asked may not be in the answer.
	_, note := m.Former.absent(managementtest.Machine("fleet", "m2", "c1"))
	m.Former.OnAdd(accessOf("another one for others"), false)
	note()
	ask("m2", 1)
}

// TestANodeAccessOfAMomentAgo isn't taken for gone at once: it may be about to be made again.
func TestANodeAccessOfAMomentAgo(t *testing.T) {
	others, narrowed, edited := accessOf("all"), accessOf("all"), accessOf("all")
	others.Spec.ClusterName, narrowed.Spec.ClusterName = "c2", "c2"
	edited.Spec.SSH.User = "another"
	for name, tc := range map[string]struct {
		happens func(f *Former)
		waits   bool
	}{
		"deleted":                    {func(f *Former) { f.OnDelete(accessOf("all")) }, true},
		"deleted, which was missed":  {func(f *Former) { f.OnDelete(cache.DeletedFinalStateUnknown{Obj: accessOf("all")}) }, true},
		"deleted, and that twice":    {func(f *Former) { f.OnDelete(accessOf("all")); f.OnDelete(others) }, true},
		"narrowed":                   {func(f *Former) { f.OnUpdate(accessOf("all"), narrowed) }, true},
		"deleted, one for others":    {func(f *Former) { f.OnDelete(others) }, false},
		"changed, but not for whom":  {func(f *Former) { f.OnUpdate(accessOf("all"), edited) }, false},
		"something else was deleted": {func(f *Former) { f.OnDelete("?") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{managementtest.Machine("fleet", "m1", "c1")}
			m, clock, _ := twoViews(objects, objects)
			tc.happens(m.Former)
			why, err := m.Without(t.Context(), "fleet", "m1", false)
			if tc.waits {
				require.ErrorContains(t, err, "NodeAccess all selected it a moment ago")
				require.ErrorContains(t, err, "until 20")
				clock.Step(formerFor - time.Second)
				_, err = m.Without(t.Context(), "fleet", "m1", false)
				require.Error(t, err)
				clock.Step(time.Second)
				why, err = m.Without(t.Context(), "fleet", "m1", false)
			}
			require.NoError(t, err)
			require.NotEmpty(t, why)
		})
	}
}
