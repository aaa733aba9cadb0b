package changemanagement

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// ill has a MachineHealthCheck have found a Machine ill on Wednesday, and its owner say how it stands with it.
func ill(reason string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		at := metav1.NewTime(outside.Add(-24 * time.Hour))
		m.Status.Conditions = []metav1.Condition{
			{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "UnhealthyNode", Message: "Ready is False for 10m", LastTransitionTime: at},
			{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: at},
		}
	}
}

// goes has a Machine be deleted at an instant.
func goes(at time.Time) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: at}, []string{clusterv1.MachineFinalizer}
	}
}

// restarts has a policy have, on all days, changes start that replace nothing.
func restarts(s *spec) {
	s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, schedule.Permit{
		Recurrence: "FREQ=DAILY", Changes: &schedule.PermittedChanges{MaxDisruption: "Restart"},
	})
}

func TestRemediationsThatPoliciesForbidAreCounted(t *testing.T) {
	const deleting = clusterv1.MachineSetMachineRemediationMachineDeletingReason
	is, began, then := ill(deleting), goes(inside), goes(outside)
	scraped := func(m *clusterv1.Machine) { m.Status.Conditions[0].Status = metav1.ConditionTrue }
	pool := machines(map[string]string{"pool": "gpu"})
	for name, tc := range map[string]struct {
		machine *clusterv1.Machine
		policy  *refitv1.ChangeManagementPolicy
		counts  string
		says    string
	}{
		"forbidden":                            {worker("w1", is, began), anytime("keep", forbids), "forbid", "policy keep forbids that \\(replacement: Forbid\\): UnhealthyNode: Ready is False for 10m"},
		"forbidden, of a control plane":        {controlPlane("w1", is, began), anytime("keep", forbids), "forbid", "policy keep forbids that"},
		"outside of windows":                   {worker("w1", is, began), weekly("mondays", "MO"), "window", "policies let no replacement start at 2026-10-03T21:00:00Z: "},
		"in a window, which is over":           {worker("w1", is, began), saturdays("weekly"), "", ""},
		"before a window, which is open":       {worker("w1", is, then), saturdays("weekly"), "window", "policies let no replacement start at"},
		"not selected":                         {worker("w1", is, began), anytime("keep", forbids, pool), "", ""},
		"not selected, and changes are off":    {worker("w1", is, began, annotated(restrictiveKey, "true")), anytime("keep", pool), "", ""},
		"a policy that is open, and it is off": {worker("w1", is, began, annotated(restrictiveKey, "true")), anytime("any"), "", ""},
		"closed, and changes are off":          {worker("w1", is, then, annotated(restrictiveKey, "true")), saturdays("weekly"), "window", "OutsideWindow"},
		"closed, and somebody has opened it":   {worker("w1", is, then, annotated(permissiveKey, text(outside.Add(time.Hour)))), saturdays("weekly"), "", ""},
		"starts of a window are spread":        {worker("w1", is, goes(opened)), saturdays("weekly", jitter("7h")), "", ""},
		"a window for others":                  {worker("w1", is, then), saturdays("weekly", restarts), "window", "policies let no replacement start at"},
		"a window for all beside it":           {worker("w1", is, began), saturdays("weekly", restarts), "", ""},
		"a policy that can't be read":          {worker("w1", is, began), onMars("mars"), "window", "Mars/Olympus"},
		"it waits":                             {worker("w1", ill(clusterv1.MachineOwnerRemediatedWaitingForRemediationReason), began), anytime("keep", forbids), "", ""},
		"it is put off":                        {worker("w1", ill(clusterv1.MachineSetMachineRemediationDeferredReason), began), anytime("keep", forbids), "", ""},
		"it has not begun":                     {worker("w1", is), anytime("keep", forbids), "", ""},
		"it is well again":                     {worker("w1", is, began, scraped), anytime("keep", forbids), "", ""},
		"a Machine of which nothing is said":   {worker("w1", began), anytime("keep", forbids), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), tc.machine, tc.policy)
			w.Clock.SetTime(closes) // what is open now says nothing: it was the other way round when that began
			if tc.machine.DeletionTimestamp != nil && tc.machine.DeletionTimestamp.Time.Equal(outside) {
				w.Clock.SetTime(inside)
			}
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
			policykindtest.Change(w.World, "w1", &clusterv1.Machine{}, func(m *clusterv1.Machine) { m.Finalizers = nil })
			w.Reconcile(r, "w1")
			_, known := r.told.Load(policykindtest.Key("w1"))
			require.False(t, known, "what is gone is forgotten")
		})
	}
}

// TestWhatWasCountedOfAClusterGoesWithIt: the names of Clusters come and go for years.
func TestWhatWasCountedOfAClusterGoesWithIt(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	informers := &informertest.FakeInformers{Scheme: managementtest.NewScheme()}
	require.NoError(t, m.ForgetClusters(t.Context(), informers))
	for _, name := range []string{"c1", "c2"} {
		s := &Candidate{Subject: inplace.Subject{Namespace: "fleet", Cluster: name}}
		m.overridden(s, &Decision{By: Overrides{{Kind: "permissive-until"}}, Passed: Overrides{{}}})
		m.remediations.WithLabelValues("fleet", name, protectedByForbid).Inc()
		m.remediations.WithLabelValues("fleet", name, protectedByWindow).Inc()
	}
	clusters, err := informers.FakeInformerFor(t.Context(), &clusterv1.Cluster{})
	require.NoError(t, err)
	clusters.Delete(cluster("c1", nil, nil))
	other := cluster("c2", nil, nil)
	other.Namespace = "elsewhere"
	clusters.Delete(other)
	for counter, left := range map[*prometheus.CounterVec]int{m.overrides: 1, m.passed: 1, m.remediations: 2} {
		require.Equal(t, left, testutil.CollectAndCount(counter))
	}
}
