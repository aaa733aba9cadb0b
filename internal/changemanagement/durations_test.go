package changemanagement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

// took is an update that has succeeded. It finished some hours ago.
func took(d time.Duration, hoursAgo int, role refitv1.Role, actions ...string) refitv1.MachineUpdate {
	finished := metav1.NewTime(inside.Add(-time.Duration(hoursAgo) * time.Hour))
	mu := *update(fmt.Sprintf("past-%s-%d", d, hoursAgo))
	mu.Status.Phase, mu.Status.FinishedAt, mu.Status.Actions = refitv1.PhaseSucceeded, &finished, actions
	mu.Status.Admission = &refitv1.Admission{AdmittedAt: metav1.NewTime(finished.Add(-d)), Role: role}
	return mu
}

func times(n int, of func(i int) refitv1.MachineUpdate) []refitv1.MachineUpdate {
	out := make([]refitv1.MachineUpdate, n)
	for i := range out {
		out[i] = of(i)
	}
	return out
}

func TestMeasure(t *testing.T) {
	const restart, drain = "Restart containerd.service", "Drain"
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	restarts := work{"fleet", refitv1.WorkerRole, disruption.Restart}
	workers := func(d time.Duration) func(int) refitv1.MachineUpdate {
		return func(int) refitv1.MachineUpdate { return took(d, 1, refitv1.WorkerRole, restart) }
	}
	for name, tc := range map[string]struct {
		updates []refitv1.MachineUpdate
		want    map[work]time.Duration
	}{
		"none":                   {nil, map[work]time.Duration{}},
		"four are too few":       {times(4, workers(minutes(1))), map[work]time.Duration{}},
		"five are enough":        {times(5, workers(minutes(1))), map[work]time.Duration{restarts: minutes(1)}},
		"of a hundred, the 95th": {times(100, func(i int) refitv1.MachineUpdate { return took(minutes(i+1), 1, refitv1.WorkerRole, restart) }), map[work]time.Duration{restarts: minutes(95)}},
		"of a few, the longest":  {times(6, func(i int) refitv1.MachineUpdate { return took(minutes(i+1), 1, refitv1.WorkerRole, restart) }), map[work]time.Duration{restarts: minutes(6)}},
		"of many, the latest hundred": {times(150, func(i int) refitv1.MachineUpdate {
			return took(minutes(i+1), i, refitv1.WorkerRole, restart)
		}), map[work]time.Duration{restarts: minutes(95)}},
		"by the role": {append(times(5, workers(minutes(1))), times(5, func(int) refitv1.MachineUpdate { return took(minutes(9), 1, refitv1.ControlPlaneRole, restart) })...),
			map[work]time.Duration{restarts: minutes(1), {"fleet", refitv1.ControlPlaneRole, disruption.Restart}: minutes(9)}},
		"by the worst action": {append(times(5, workers(minutes(1))), times(5, func(int) refitv1.MachineUpdate {
			return took(minutes(9), 1, refitv1.WorkerRole, restart, drain, "DaemonReload")
		})...), map[work]time.Duration{restarts: minutes(1), {"fleet", refitv1.WorkerRole, disruption.Drain}: minutes(9)}},
		"of no action": {times(5, func(int) refitv1.MachineUpdate { return took(minutes(2), 1, refitv1.WorkerRole) }), map[work]time.Duration{{"fleet", refitv1.WorkerRole, disruption.None}: minutes(2)}},
		"by the namespace": {times(8, func(i int) refitv1.MachineUpdate {
			mu := took(minutes(1), 1, refitv1.WorkerRole, restart)
			mu.Namespace = fmt.Sprint(i % 2)
			return mu
		}), map[work]time.Duration{}},
		"what has failed is not measured": {times(5, func(int) refitv1.MachineUpdate {
			mu := took(minutes(1), 1, refitv1.WorkerRole, restart)
			mu.Status.Phase = refitv1.PhaseFailed
			return mu
		}), map[work]time.Duration{}},
		"what was never admitted is not measured": {times(5, func(int) refitv1.MachineUpdate {
			mu := took(minutes(1), 1, refitv1.WorkerRole, restart)
			mu.Status.Admission = nil
			return mu
		}), map[work]time.Duration{}},
		"clocks that went back make a second of it": {times(5, workers(-minutes(1))), map[work]time.Duration{restarts: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[work]time.Duration{}
			measure(tc.updates, got)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestTheGateKnowsHowLongItTakes asks an hour before the window closes, for what the policy expects to take two.
func TestTheGateKnowsHowLongItTakes(t *testing.T) {
	planned := func(actions ...string) func(*refitv1.MachineUpdate) {
		return func(mu *refitv1.MachineUpdate) {
			mu.Status.Plan = &refitv1.PlannedWork{Material: true, Actions: actions}
		}
	}
	for name, tc := range map[string]struct {
		samples int
		machine *clusterv1.Machine
		state   states
		open    bool
		says    string
	}{
		"too few were measured":              {4, worker("w"), states{planned("Restart kubelet.service")}, false, "shorter than 2h0m0s"},
		"enough were measured":               {5, worker("w"), states{planned("Restart kubelet.service")}, true, "open"},
		"the node has not planned it":        {5, worker("w"), nil, false, "shorter than 2h0m0s"},
		"others were measured, with less":    {5, worker("w"), states{planned("Restart kubelet.service", "Reboot")}, false, "shorter than 2h0m0s"},
		"others were measured, of this role": {5, controlPlane("w"), states{planned("Restart kubelet.service")}, false, "shorter than 2h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), saturdays("a", expects("2h")), tc.machine, update("w", tc.state...))
			for i := range tc.samples {
				mu := took(10*time.Minute, i, refitv1.WorkerRole, "Restart containerd.service")
				require.NoError(t, w.Create(t.Context(), &mu))
				require.NoError(t, w.Status().Update(t.Context(), &mu))
			}
			w.Clock.SetTime(closes.Add(-time.Hour))
			d := w.ask("w")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Contains(t, d.Message, tc.says)
		})
	}
}

func TestMeasurementsAreMadeAgain(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), saturdays("a", expects("7h")), worker("w"), update("w", func(mu *refitv1.MachineUpdate) { mu.Status.Plan = &refitv1.PlannedWork{} }))
	w.Clock.SetTime(inside.Add(time.Hour))
	require.False(t, w.ask("w").Open)
	for i := range 5 {
		mu := took(time.Minute, i, refitv1.WorkerRole)
		require.NoError(t, w.Create(t.Context(), &mu))
		require.NoError(t, w.Status().Update(t.Context(), &mu))
	}
	require.False(t, w.ask("w").Open, "what was measured a moment ago is good enough")
	w.Clock.SetTime(inside.Add(time.Hour + time.Minute))
	require.True(t, w.ask("w").Open)
}
