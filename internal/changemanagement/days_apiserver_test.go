//go:build e2e

package changemanagement

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// dayWorld is a real API server with Machines whose updates wait, and what decides on them by a clock of the test.
type dayWorld struct {
	client.WithWatch
	t        *testing.T
	clock    *clocktesting.FakeClock
	policies *Policies
	gate     *Gate
}

func startDays(t *testing.T, now time.Time, machines ...string) *dayWorld {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	core := filepath.Join(strings.TrimSpace(string(out)), "core", "config", "crd", "bases")
	server := apitest.Start(t, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		filepath.Join("..", "..", "config", "crd", "bases"), filepath.Join(core, "cluster.x-k8s.io_clusters.yaml"), filepath.Join(core, "cluster.x-k8s.io_machines.yaml"),
		filepath.Join(core, "cluster.x-k8s.io_machinedeployments.yaml"),
	}})
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: managementtest.NewScheme()})
	require.NoError(t, err)
	d := &dayWorld{WithWatch: c, t: t, clock: clocktesting.NewFakeClock(now)}
	d.policies = NewPolicies(c, c, d.clock)
	d.gate = d.leader()
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta{Name: "fleet"}}))
	one := cluster("c1", nil, nil)
	one.UID, one.Spec.Paused = "", new(true) // a Cluster needs some spec
	require.NoError(t, c.Create(t.Context(), one))
	for _, name := range machines {
		m := worker(name)
		m.UID, m.CreationTimestamp = "", metav1.Time{}
		m.Spec.Bootstrap.DataSecretName = new("x")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AcmeMachine", Name: name}
		require.NoError(t, c.Create(t.Context(), m))
		mu := update(name, waiting)
		mu.Spec.Digest = "sha256:" + strings.Repeat("a", 64)
		status := mu.Status
		require.NoError(t, c.Create(t.Context(), mu))
		mu.Status = status
		mu.Status.ObservedDigest = mu.Spec.Digest
		require.NoError(t, c.Status().Update(t.Context(), mu))
	}
	return d
}

// leader returns what decides in a process that has just come to lead.
func (d *dayWorld) leader() *Gate {
	return &Gate{Policies: d.policies, Client: d.WithWatch, Live: d.WithWatch, Clock: d.clock, Metrics: NewMetrics(prometheus.NewRegistry())}
}

// admit asks for the update of a Machine, and has it succeed at once if it may start.
func (d *dayWorld) admit(name string) Decision {
	d.t.Helper()
	key := client.ObjectKey{Namespace: "fleet", Name: name}
	m, mu := &clusterv1.Machine{}, &refitv1.MachineUpdate{}
	require.NoError(d.t, d.Get(d.t.Context(), key, m))
	require.NoError(d.t, d.Get(d.t.Context(), key, mu))
	decision, err := d.gate.Admit(d.t.Context(), m, mu, func(a refitv1.Admission) error {
		started(a.AdmittedAt.Time)(mu)
		mu.Status.Admission = &a
		ended(mu)
		return d.Status().Update(d.t.Context(), mu)
	})
	require.NoError(d.t, err)
	return decision
}

// TestABudgetOfADayOnARealAPIServer has a policy that never closes: its budget of starts is one of each day, as the days of its zone are.
func TestABudgetOfADayOnARealAPIServer(t *testing.T) {
	night := time.Date(2026, 10, 24, 21, 0, 0, 0, time.UTC) // 23:00 in Berlin, before the day of 25 hours
	d := startDays(t, night, "w1", "w2", "w3", "w4")
	p := policy("always-but", schedule.MaintenanceScheduleStrategy, budget(refitv1.Budget{MaxStartsPerWindow: 1}), func(s *spec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{TimeZone: "Europe/Berlin", Exclude: []schedule.Exclude{{From: "2026-12-20", Until: "2027-01-04"}}}
	})
	p.UID = ""
	require.NoError(t, d.Create(t.Context(), p))
	require.NoError(t, d.policies.Prime(t.Context()))

	require.True(t, d.admit("w1").Open)
	next := d.admit("w2")
	require.Equal(t, schedule.BudgetExhausted, next.Reason)
	require.Contains(t, next.Message, "2026-10-24T22:00:00Z", "the next day begins at midnight in Berlin")
	require.EqualValues(t, 3600, next.NextChangeETASeconds)

	d.clock.SetTime(night.Add(time.Hour))
	require.True(t, d.admit("w2").Open)
	require.Contains(t, d.admit("w3").Message, "2026-10-25T23:00:00Z", "this Sunday has 25 hours")
	d.clock.SetTime(night.Add(25*time.Hour + 59*time.Minute))
	require.Equal(t, schedule.BudgetExhausted, d.admit("w3").Reason)
	d.gate = d.leader() // who forgets nothing
	require.Equal(t, schedule.BudgetExhausted, d.admit("w3").Reason)
	d.clock.SetTime(night.Add(26 * time.Hour))
	require.True(t, d.admit("w3").Open)
	require.Equal(t, schedule.BudgetExhausted, d.admit("w4").Reason)
}
