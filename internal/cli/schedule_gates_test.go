package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestScheduleTellsOfGates: what is answered without a cluster knows of no health gate, and says so where programs don't read it.
func TestScheduleTellsOfGates(t *testing.T) {
	const gated = weekendsSpec + `
gates:
- {name: errors, prometheus: {url: "https://prometheus:9090", query: error_ratio, mustBe: {operator: LessThan, value: "0.01"}}}
- {name: web, cel: {expression: web.status.ready, objects: [{name: web, cluster: Management, apiVersion: apps/v1, kind: Deployment, objectName: web}]}}
`
	asked := func(file string, args ...string) (out, told string) {
		cmd := newScheduleCommand()
		var stdout, stderr bytes.Buffer
		cmd.SetOut(&stdout)
		cmd.SetErr(&stderr)
		cmd.SetIn(strings.NewReader(file))
		cmd.SetArgs(append(args, "-f", "-", "--now", "2026-10-03T21:00:00Z"))
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return stdout.String(), stderr.String()
	}
	for _, command := range [][]string{{"eval"}, {"eval", "-o", "json"}, {"next", "-n", "1"}, {"simulate", "--weeks", "1"}} {
		plain, told := asked(weekendsSpec, command...)
		require.Empty(t, told)
		out, told := asked(gated, command...)
		require.Equal(t, plain, out)
		require.Regexp(t, `^Not asked here: health gates, errors of policy \S+, web of policy \S+. While one does not hold, nothing starts.\n$`, told)
	}
	_, err := runSchedule(t, strings.Replace(gated, "web.status.ready", "db.ready", 1), "next", "-f", "-")
	require.ErrorContains(t, err, "gates[1].cel.expression: ERROR: <input>:1:1: undeclared reference to 'db'")
	out, err := runSchedule(t, strings.Replace(gated, "error_ratio", `""`, 1), "lint", "-f", "-")
	require.Error(t, err)
	require.Contains(t, out, "gates[0].prometheus.query")
}

// TestNextOfLiveMachinesTellsOfGates shows what refit has found out. What it may ask is not known here, so no policy is invalid for it.
func TestNextOfLiveMachinesTellsOfGates(t *testing.T) {
	c := liveFleet(t)
	var p refitv1.ChangeManagementPolicy
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "saturdays"}, &p))
	p.Spec.Gates = []refitv1.HealthGate{
		{Name: "errors", Prometheus: &refitv1.PrometheusGate{URL: "https://prometheus:9090", Query: "r", MustBe: refitv1.Comparison{Operator: refitv1.LessThan, Value: "1"}}},
		{Name: "late", Prometheus: &refitv1.PrometheusGate{URL: "https://prometheus:9090", Query: "s", MustBe: refitv1.Comparison{Operator: refitv1.LessThan, Value: "1"}}},
	}
	require.NoError(t, c.Update(t.Context(), &p))
	p.Status.Gates = []refitv1.GateStatus{{Name: "errors", State: refitv1.GateFailing, Since: metav1.Now(), Message: "it is 7"}}
	require.NoError(t, c.Status().Update(t.Context(), &p))
	next := func(args ...string) string {
		out, err := run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), append(args, "--now", "2026-10-05T00:00:00Z", "-n", "1")...)
		require.NoError(t, err)
		return out
	}
	require.Contains(t, next("--machine", "w1"), "now: closed (OutsideWindow)")
	require.Contains(t, next("--machine", "w1"), "health gate errors of policy saturdays: Failing: it is 7\nhealth gate late of policy saturdays: Unknown: refit has not asked it lately\n")
	require.Contains(t, next("--machine", "w1", "-o", "json"), `"state": "Failing"`)
	require.NotContains(t, next("--machine", "cp"), "health gate")
}
