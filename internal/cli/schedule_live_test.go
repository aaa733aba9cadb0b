package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
)

// liveFleet is a management cluster with three workers, of which one is of a pool of its own, a control plane, and policies.
func liveFleet(t *testing.T) client.WithWatch {
	t.Helper()
	machine := func(name string, labels map[string]string) *clusterv1.Machine {
		return managementtest.Machine("fleet", name, "prod", func(m *clusterv1.Machine) {
			m.Status.NodeRef.Name = "node-" + name
			for k, v := range labels {
				m.Labels[k] = v
			}
		})
	}
	policy := func(name string, selector refitv1.MachinesSelector, p schedule.Policy) *refitv1.ChangeManagementPolicy {
		return &refitv1.ChangeManagementPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
			Spec:       refitv1.ChangeManagementPolicySpec{Selector: selector, Policy: p},
		}
	}
	saturdays := schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
		TimeZone: "Europe/Berlin",
		Permit:   []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "20:00", Duration: "8h"}},
		Exclude:  []schedule.Exclude{{Calendar: &schedule.CalendarReference{ConfigMap: schedule.ConfigMapKey{Name: "holidays", Key: "x.ics"}}}},
	}}
	pool := refitv1.MachinesSelector{Roles: []refitv1.Role{refitv1.WorkerRole}, Machines: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}}}
	workers := refitv1.MachinesSelector{Roles: []refitv1.Role{refitv1.WorkerRole}}
	return managementtest.As("alice", managementtest.New(
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}},
		machine("cp", map[string]string{clusterv1.MachineControlPlaneLabel: ""}), machine("w1", nil), machine("w2", nil),
		machine("w3", map[string]string{"pool": "gpu"}),
		policy("saturdays", workers, saturdays), policy("gpu", pool, schedule.Policy{Strategy: schedule.RestrictiveStrategy}),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "holidays"}, Data: map[string]string{
			"x.ics": "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//EN\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:20261010\r\nDTEND;VALUE=DATE:20261011\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		}},
	))
}

func TestNextOfLiveMachines(t *testing.T) {
	c := liveFleet(t)
	next := func(args ...string) (string, error) {
		return run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), append(args, "--now", "2026-10-05T00:00:00Z", "-n", "1")...)
	}
	out, err := next("--machine", "node-w1")
	require.NoError(t, err)
	require.Contains(t, out, "fleet/w1\npolicies: saturdays\nnow: closed (OutsideWindow): policy saturdays: OutsideWindow; opens at 2026-10-10T22:00:00Z")
	require.Contains(t, out, "1. Sun 2026-10-11 00:00 CEST to Sun 2026-10-11 04:00 CEST, 4h", "the holiday is in the calendar")

	out, err = next("--cluster", "prod")
	require.NoError(t, err)
	require.Contains(t, out, "fleet/cp\nnow: open (Open): no policy selects the machine\n")
	require.Contains(t, out, "fleet/w1, fleet/w2\npolicies: saturdays\n", "what is alike is said once")
	require.Contains(t, out, "fleet/w3\npolicies: gpu + saturdays\nnow: closed (Paused): policy gpu is restrictive\n")

	var m clusterv1.Machine
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "w2"}, &m))
	m.Annotations = map[string]string{"capi-refit.dev/restrictive-until": "true"}
	require.NoError(t, c.Update(t.Context(), &m))
	out, err = next("--cluster", "prod", "--namespace", "fleet", "-o", "json")
	require.NoError(t, err)
	var answers []liveOutput
	require.NoError(t, json.Unmarshal([]byte(out), &answers))
	require.Len(t, answers, 4)
	require.Equal(t, []string{"fleet/w2"}, answers[2].Machines)
	require.Equal(t, schedule.Overridden, answers[2].Decision.Reason, "overrides count")

	for says, args := range map[string][]string{
		"there is no Machine":                     {"--machine", "nope"},
		`no Cluster that is named "nope"`:         {"--cluster", "nope"},
		"leave --filename":                        {"--cluster", "prod", "-f", "x.yaml"},
		"leave --filename, --policy":              {"--cluster", "prod", "--role", "Worker"},
		"say which policies are asked":            {},
		"--output is \"xml\" and can be text":     {"--cluster", "prod", "-o", "xml"},
		`--time-zone is "Mars", which is not`:     {"--cluster", "prod", "--time-zone", "Mars"},
		`that is named "prod" in namespace other`: {"--cluster", "prod", "--namespace", "other"},
		"there is no Machine in namespace other":  {"--machine", "w1", "--namespace", "other"},
	} {
		_, err := next(args...)
		require.ErrorContains(t, err, says)
	}
}

func TestCoverage(t *testing.T) {
	c := liveFleet(t)
	coverage := func(args ...string) (string, error) {
		return run(t, (&coverageFlags{managementFlags: connected(c)}).command(), args...)
	}
	out, err := coverage("-n", "fleet")
	require.NoError(t, err)
	require.Contains(t, out, "fleet      prod     ControlPlane  1         1           none\n")
	require.Contains(t, out, "fleet      prod     Worker        3         0           gpu, saturdays\n")
	require.Contains(t, out, "their changes start at any time:\n  fleet/prod ControlPlane: cp\n")

	out, err = coverage("-A", "--exit-code", "-o", "json")
	var status *exitStatus
	require.ErrorAs(t, err, &status)
	require.Equal(t, 1, status.code)
	var all []covered
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Equal(t, []string{"cp"}, all[0].Unselected)
	require.Equal(t, []string{"gpu", "saturdays"}, all[1].Policies)

	_, err = coverage("-n", "other")
	require.ErrorContains(t, err, "there are no Machines in namespace other")
	_, err = coverage("-n", "fleet", "-A")
	require.ErrorContains(t, err, "exclude each other")
}

// TestLiveCommandsOfTheDocs compares what docs/policies.md shows with what the commands print.
func TestLiveCommandsOfTheDocs(t *testing.T) {
	machine := func(name, role string) *clusterv1.Machine {
		return managementtest.Machine("fleet", name, "prod", func(m *clusterv1.Machine) {
			if role != "" {
				m.Labels[role] = ""
			}
		})
	}
	c := managementtest.As("alice", managementtest.New(
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}},
		machine("prod-cp", clusterv1.MachineControlPlaneLabel), machine("prod-w1", ""), machine("prod-w2", ""),
		&refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers"}, Spec: refitv1.ChangeManagementPolicySpec{
			Selector: refitv1.MachinesSelector{Roles: []refitv1.Role{refitv1.WorkerRole}},
			Policy: schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
				TimeZone: "Europe/Berlin", Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA,SU"}},
			}},
		}},
	))
	page := readPage(t, filepath.Join(docsDir, "policies.md"))
	out, err := run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), "--namespace", "fleet", "--cluster", "prod", "-n", "1", "--now", "2026-10-05T00:00:00Z")
	require.NoError(t, err)
	require.True(t, strings.Contains(page, "$ refit schedule next --namespace fleet --cluster prod -n 1\n"+out), out)
	out, err = run(t, (&coverageFlags{managementFlags: connected(c)}).command(), "-A")
	require.NoError(t, err)
	require.True(t, strings.Contains(page, "$ refit schedule coverage -A\n"+out), out)
}

// TestNextOfAPolicyThatRefitRefuses: at which URLs refit may ask is not known here, and its status says it.
func TestNextOfAPolicyThatRefitRefuses(t *testing.T) {
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "healthy", Generation: 2}}
	p.Spec.Strategy = schedule.PermissiveStrategy
	p.Spec.Gates = []refitv1.HealthGate{{Name: "errors", Prometheus: &refitv1.PrometheusGate{
		URL: "https://elsewhere", Query: "up", MustBe: refitv1.Comparison{Operator: refitv1.Equal, Value: "1"},
	}}}
	p.Status.Conditions = []metav1.Condition{{Type: refitv1.ReadyCondition, Status: metav1.ConditionFalse, ObservedGeneration: 2, Message: "the policy is closed: refit may not ask there"}}
	c := managementtest.As("alice", managementtest.New(p, managementtest.Machine("fleet", "w1", "prod"), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}))
	out, err := run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), "--machine", "w1", "--now", "2026-10-05T00:00:00Z")
	require.NoError(t, err)
	require.Contains(t, out, "now: closed (InvalidPolicy): policy healthy: the policy is closed: refit may not ask there")
	p.Generation = 3 // it was put right, and refit has not looked yet
	require.NoError(t, c.Update(t.Context(), p))
	out, err = run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), "--machine", "w1", "--now", "2026-10-05T00:00:00Z")
	require.NoError(t, err)
	require.Contains(t, out, "now: open")
}

// TestCoverageOfAMachineWithoutCluster does not end for one that is on its way out.
func TestCoverageOfAMachineWithoutCluster(t *testing.T) {
	c := managementtest.As("alice", managementtest.New(
		managementtest.Machine("fleet", "w1", "gone"), managementtest.Machine("fleet", "w2", "prod"), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}},
	))
	f := &coverageFlags{managementFlags: connected(c)}
	out, err := run(t, f.command(), "-A")
	require.NoError(t, err)
	require.Contains(t, out, "w2")
	require.NotContains(t, out, "w1")
}
