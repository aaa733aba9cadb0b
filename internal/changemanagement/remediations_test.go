package changemanagement

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

// ill has a MachineHealthCheck have found a Machine ill, and its owner say how it stands with it.
func ill(reason string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		at := metav1.NewTime(inside)
		m.Status.Conditions = []metav1.Condition{
			{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "UnhealthyNode", Message: "Ready is False for 10m", LastTransitionTime: at},
			{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: at},
		}
	}
}

func TestRemediationsThatPoliciesForbidAreCounted(t *testing.T) {
	const deleting = clusterv1.MachineSetMachineRemediationMachineDeletingReason
	scraped := func(m *clusterv1.Machine) { m.Status.Conditions[0].Status = metav1.ConditionTrue }
	for name, tc := range map[string]struct {
		machine *clusterv1.Machine
		policy  *refitv1.ChangeManagementPolicy
		counts  string
		says    string
	}{
		"forbidden":                          {worker("w1", ill(deleting)), anytime("keep", forbids), "forbid", "policy keep forbids that \\(replacement: Forbid\\): UnhealthyNode: Ready is False for 10m"},
		"forbidden, of a control plane":      {controlPlane("w1", ill(deleting)), anytime("keep", forbids), "forbid", "policy keep forbids that"},
		"outside of windows":                 {worker("w1", ill(deleting)), weekly("mondays", "MO"), "window", "policies let no replacement start now"},
		"in a window":                        {worker("w1", ill(deleting)), saturdays("weekly"), "", ""},
		"not selected":                       {worker("w1", ill(deleting)), anytime("keep", forbids, machines(map[string]string{"pool": "gpu"})), "", ""},
		"a policy that can't be read":        {worker("w1", ill(deleting)), onMars("mars"), "window", "Mars/Olympus"},
		"it waits":                           {worker("w1", ill(clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)), anytime("keep", forbids), "", ""},
		"it is put off":                      {worker("w1", ill(clusterv1.MachineSetMachineRemediationDeferredReason)), anytime("keep", forbids), "", ""},
		"it is well again":                   {worker("w1", ill(deleting), scraped), anytime("keep", forbids), "", ""},
		"a Machine of which nothing is said": {worker("w1"), anytime("keep", forbids), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), tc.machine, tc.policy)
			r := &Remediations{Client: w, Hooks: w.hooks, Metrics: w.gate.Metrics}
			w.Reconcile(r, "w1")
			w.Reconcile(r, "w1") // it is told once
			all := testutil.CollectAndCount(r.Metrics.remediations)
			if tc.counts == "" {
				require.Zero(t, all)
				w.RequireNoEvent()
				return
			}
			require.Equal(t, 1, all)
			require.Equal(t, 1., testutil.ToFloat64(r.Metrics.remediations.WithLabelValues("fleet", "c1", tc.counts)))
			w.RequireEvent("Warning RemediatedDespitePolicy Cluster API replaces the Machine, and asks nobody, though .*" + tc.says)
			w.RequireNoEvent()

			// Another one of its name counts for itself.
			policykindtest.Change(w.World, "w1", &clusterv1.Machine{}, func(m *clusterv1.Machine) { m.UID = "another" })
			w.Reconcile(r, "w1")
			require.Equal(t, 2., testutil.ToFloat64(r.Metrics.remediations.WithLabelValues("fleet", "c1", tc.counts)))
			require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "w1", &clusterv1.Machine{})))
			w.Reconcile(r, "w1")
			_, known := r.told.Load(policykindtest.Key("w1"))
			require.False(t, known, "what is gone is forgotten")
		})
	}
}
