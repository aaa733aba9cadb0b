package changemanagement

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestWhoWaitsIsToldOfThePlatform demands that all namespaces look again when a policy of the platform says something else, and one whose labels do.
func TestWhoWaitsIsToldOfThePlatform(t *testing.T) {
	w := newWorld(t, platform(never("platform")), namespace("fleet", nil))
	var told []string
	w.policies.OnChange(func(namespace string, concerns func(labels.Set) bool) {
		require.True(t, concerns(nil))
		told = append(told, namespace)
	})
	again := func() {
		_, err := w.policies.Cluster.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "platform"}})
		require.NoError(t, err)
	}
	again()
	require.Empty(t, told, "the same is no news")
	p := platformOf(w)
	annotatedPolicy(permissiveKey, text(inside.Add(time.Hour)))(p)
	require.NoError(t, w.Update(t.Context(), p))
	again()
	require.Equal(t, []string{""}, told)
	_, err := w.policies.relabel(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "fleet"}})
	require.NoError(t, err)
	require.Equal(t, []string{"", "fleet"}, told)
}

// TestWhoWaitsIsToldWhatAnEditIsAbout: the Clusters that the policy selects, or has selected.
func TestWhoWaitsIsToldWhatAnEditIsAbout(t *testing.T) {
	selects := func(stage string) edit {
		return func(s *spec) { s.Selector.Clusters.MatchLabels = map[string]string{"stage": stage} }
	}
	w := newWorld(t, saturdays("a", selects("prod")))
	var about []string
	w.policies.OnChange(func(_ string, concerns func(labels.Set) bool) {
		for _, stage := range []string{"prod", "test", "dev"} {
			if concerns(labels.Set{"stage": stage}) {
				about = append(about, stage)
			}
		}
	})
	p := &refitv1.ChangeManagementPolicy{}
	key := client.ObjectKeyFromObject(saturdays("a"))
	require.NoError(t, w.Get(t.Context(), key, p))
	selects("test")(&p.Spec)
	p.Generation++
	require.NoError(t, w.Update(t.Context(), p))
	_, err := w.policies.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	require.Equal(t, []string{"prod", "test"}, about)
}

// TestNamespacesAreLookedAtWhenTheirLabelsChange leaves out all else.
func TestNamespacesAreLookedAtWhenTheirLabelsChange(t *testing.T) {
	update := func(before, after map[string]string) bool {
		return relabeled.Update(event.UpdateEvent{ObjectOld: namespace("a", before), ObjectNew: namespace("a", after)})
	}
	require.True(t, update(nil, map[string]string{"a": "b"}))
	require.False(t, update(map[string]string{"a": "b"}, map[string]string{"a": "b"}))
}

// TestMissingPoliciesOfThePlatform: a Cluster that was moved here must not start before they are read.
func TestMissingPoliciesOfThePlatform(t *testing.T) {
	w := newWorld(t, saturdays("a"))
	require.NoError(t, w.Create(t.Context(), platform(never("platform"))))
	missing, err := w.policies.Missing(t.Context(), w.Client, "fleet")
	require.NoError(t, err)
	require.Equal(t, []string{platformKey}, missing)
	require.NoError(t, w.policies.Prime(t.Context()))
	missing, err = w.policies.Missing(t.Context(), w.Client, "fleet")
	require.NoError(t, err)
	require.Empty(t, missing)
}

func TestStatusOfAPolicyOfThePlatform(t *testing.T) {
	other := cluster("c1", nil, nil)
	other.Namespace = "other"
	elsewhere, mu := worker("w9"), update("w9", waiting)
	elsewhere.Namespace, mu.Namespace = "other", "other"
	third := worker("w8")
	third.Namespace = "third"
	w := newWorld(t, cluster("c1", nil, nil), other, worker("w1"), controlPlane("cp1"), update("w1", started(inside), ended), elsewhere, mu, third,
		namespace("fleet", map[string]string{"tier": "prod"}), namespace("other", map[string]string{"tier": "prod"}), namespace("third", nil),
		platform(saturdays("platform", roles(refitv1.WorkerRole)), inProd))
	s := w.status()
	show := func() *refitv1.ClusterChangeManagementPolicy {
		_, err := s.reconcileCluster(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "platform"}})
		require.NoError(t, err)
		return platformOf(w)
	}
	p := show()
	st := p.Status
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.EqualValues(t, 1, *st.PendingMachines)
	require.True(t, *st.Open)
	require.Equal(t, closes, st.Current.End.UTC())
	require.Empty(t, st.Durations)
	require.Nil(t, st.Ledger)
	require.Equal(t, []string{refitv1.GraceFinalizer}, p.Finalizers)
	writes := w.StatusWrites
	show()
	require.Equal(t, writes, w.StatusWrites, "the same is not written again")
}

// TestAPolicyOfThePlatformThatIsDeletedCountsForAWhile, until another one of the same selectors is in its place.
func TestAPolicyOfThePlatformThatIsDeletedCountsForAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		successor *refitv1.ClusterChangeManagementPolicy
		gone      bool
	}{
		"nothing in its place":           {nil, false},
		"one with the same selectors":    {platform(never("b"), inProd), true},
		"one for other namespaces":       {platform(never("b")), false},
		"one that selects other workers": {platform(never("b", roles(refitv1.WorkerRole)), inProd), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1"), platform(never("platform"), inProd), namespace("fleet", map[string]string{"tier": "prod"}))
			w.Clock.SetTime(time.Now().Truncate(time.Second)) // by which the API server deletes
			s := w.status()
			show := func() {
				_, err := s.reconcileCluster(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "platform"}})
				require.NoError(t, err)
			}
			show()
			require.NoError(t, w.Delete(t.Context(), platformOf(w)))
			if tc.successor != nil {
				tc.successor.CreationTimestamp = metav1.Now()
				require.NoError(t, w.Create(t.Context(), tc.successor))
				require.NoError(t, w.policies.Prime(t.Context()))
			}
			show()
			err := w.Client.Get(t.Context(), types.NamespacedName{Name: "platform"}, &refitv1.ClusterChangeManagementPolicy{})
			if tc.gone {
				require.True(t, client.IgnoreNotFound(err) == nil && err != nil, "%v", err)
				return
			}
			require.NoError(t, err)
			require.False(t, w.ask("w1").Open)
			w.Clock.Step(10 * time.Minute)
			show()
			require.Error(t, w.Client.Get(t.Context(), types.NamespacedName{Name: "platform"}, &refitv1.ClusterChangeManagementPolicy{}))
		})
	}
}

// TestCollectedPoliciesOfThePlatform demands that policies of one name in both scopes, and Clusters of one name, have series of their own.
func TestCollectedPoliciesOfThePlatform(t *testing.T) {
	other := cluster("c1", nil, nil)
	other.Namespace = "other"
	elsewhere := worker("w9")
	elsewhere.Namespace = "other"
	w := newWorld(t, cluster("c1", nil, nil), other, worker("w1"), elsewhere, namespace("fleet", nil), namespace("other", nil),
		platform(never("a")), saturdays("a"), platform(never("idle", roles(refitv1.ControlPlaneRole))))
	require.Equal(t, strings.Join([]string{
		`next_change_eta_seconds{cluster="",namespace="",policy="ClusterChangeManagementPolicy idle",role=""} -1`,
		`next_change_eta_seconds{cluster="c1",namespace="fleet",policy="ClusterChangeManagementPolicy a",role="Worker"} -1`,
		`next_change_eta_seconds{cluster="c1",namespace="fleet",policy="a",role="Worker"} 0`,
		`next_change_eta_seconds{cluster="c1",namespace="other",policy="ClusterChangeManagementPolicy a",role="Worker"} -1`,
	}, "\n"), w.collected("next_change_eta_seconds"))
	require.Equal(t, strings.Join([]string{
		`joint_next_change_eta_seconds{cluster="c1",namespace="fleet",role="Worker"} -1`,
		`joint_next_change_eta_seconds{cluster="c1",namespace="other",role="Worker"} -1`,
	}, "\n"), w.collected("joint_next_change_eta_seconds"))
	require.Contains(t, w.collected("strategy_enabled"), `strategy_enabled{namespace="",policy="ClusterChangeManagementPolicy a",strategy="Restrictive"} 1`)
}

// TestHowToLetAChangeGo demands that nobody is told to annotate what opens nothing.
func TestHowToLetAChangeGo(t *testing.T) {
	objects := []client.Object{cluster("c1", nil, nil), worker("w1"), update("w1"), namespace("fleet", nil), saturdays("a")}
	const how = "kubectl annotate clusterchangemanagementpolicies platform capi-refit.dev/bypass-change-management="
	w := newWorld(t, append(objects, platform(never("platform")), platform(anytime("open")))...)
	d := w.ask("w1")
	require.Contains(t, d.HowToBypassFirm("digest-w1"), how+"digest-w1")
	_, err := w.permit(propose(replacing))
	require.ErrorContains(t, err, how+"d1")
	w = newWorld(t, append(objects, platform(never("platform"), allows))...)
	d = w.ask("w1")
	require.Empty(t, d.HowToBypassFirm("digest-w1"))
	_, err = w.permit(propose(replacing))
	require.ErrorContains(t, err, "annotate its MachineDeployment")
}
