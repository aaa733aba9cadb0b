package changemanagement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

const restart, drain = "Restart containerd.service", "Drain"

// worst returns the worst action, of which the first word is what it is.
func worst(actions []string) string {
	types := make([]disruption.ActionType, len(actions))
	for i, a := range actions {
		name, _, _ := strings.Cut(a, " ")
		types[i] = disruption.ActionType(name)
	}
	return string(disruption.Worst(types...))
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// took is an update that has succeeded. It finished some hours ago.
func took(d time.Duration, hoursAgo int, role refitv1.Role, actions ...string) refitv1.MachineUpdate {
	finished := metav1.NewTime(inside.Add(-time.Duration(hoursAgo) * time.Hour))
	mu := *update(fmt.Sprintf("past-%s-%d", d, hoursAgo))
	mu.Status.Phase, mu.Status.FinishedAt, mu.Status.WorstAction = refitv1.PhaseSucceeded, &finished, worst(actions)
	mu.Status.Admission = &refitv1.Admission{AdmittedAt: metav1.NewTime(finished.Add(-d)), Role: role}
	return mu
}

func times(n int, of func(i int) refitv1.MachineUpdate) []refitv1.MachineUpdate {
	out := make([]refitv1.MachineUpdate, n)
	for i := range out {
		out[i] = of(i)
		out[i].Name = fmt.Sprint("m", i)
	}
	return out
}

func TestLearn(t *testing.T) {
	worker, controlPlane := refitv1.WorkerRole, refitv1.ControlPlaneRole
	all := func(n int, d time.Duration) []refitv1.MachineUpdate {
		return times(n, func(int) refitv1.MachineUpdate { return took(d, 1, worker, restart) })
	}
	rising := func(n int) []refitv1.MachineUpdate {
		return times(n, func(i int) refitv1.MachineUpdate { return took(minutes(i+1), i, worker, restart) })
	}
	for name, tc := range map[string]struct {
		updates []refitv1.MachineUpdate
		prior   time.Duration
		want    map[work]time.Duration // 0: too few
	}{
		"none":                     {nil, 0, map[work]time.Duration{}},
		"19 are too few":           {all(19, minutes(1)), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: 0}},
		"20 are enough":            {all(20, minutes(1)), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(1)}},
		"the 95th of a hundred":    {rising(20), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(19)}},
		"the latest forty":         {rising(60), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(38)}},
		"one of 20 took very long": {append(all(19, minutes(5)), took(30*time.Hour, 1, worker, restart)), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(5)}},
		"three of 20 did":          {append(all(17, minutes(5)), times(3, func(i int) refitv1.MachineUpdate { return took(30*time.Hour, i+2, worker, restart) })...), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(15)}},
		"and more was expected":    {append(all(17, minutes(5)), times(3, func(i int) refitv1.MachineUpdate { return took(30*time.Hour, i+2, worker, restart) })...), minutes(20), map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(60)}},
		"longer ago than 90 days":  {times(20, func(int) refitv1.MachineUpdate { return took(minutes(1), 91*24, worker, restart) }), 0, map[work]time.Duration{}},
		"by role and worst action": {append(all(20, minutes(1)), times(20, func(int) refitv1.MachineUpdate {
			return took(minutes(9), 2, controlPlane, restart, drain, "DaemonReload")
		})...), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: minutes(1), {role: controlPlane, worst: disruption.Drain}: minutes(9)}},
		"of no action":                   {times(20, func(int) refitv1.MachineUpdate { return took(minutes(2), 1, worker) }), 0, map[work]time.Duration{{role: worker, worst: disruption.None}: minutes(2)}},
		"what nobody knows is the worst": {times(20, func(int) refitv1.MachineUpdate { return took(minutes(2), 1, worker, strings.Repeat("X", 100), "") }), 0, map[work]time.Duration{{role: worker, worst: disruption.Replace}: minutes(2)}},
		"clocks that have gone back":     {all(20, -minutes(1)), 0, map[work]time.Duration{{role: worker, worst: disruption.Restart}: time.Second}},
		"what has failed, or was never admitted": {times(20, func(i int) refitv1.MachineUpdate {
			mu := took(minutes(1), 1, worker, restart)
			if mu.Status.Phase = refitv1.PhaseFailed; i%2 == 0 {
				mu.Status.Phase, mu.Status.Admission = refitv1.PhaseSucceeded, nil
			}
			return mu
		}), 0, map[work]time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			var st refitv1.ChangeManagementPolicyStatus
			for range 2 { // what is seen again counts once
				l := newLearner(inside, &st)
				for i := range tc.updates {
					l.see(&tc.updates[i])
				}
				l.write(&st, tc.prior)
			}
			got := map[work]time.Duration{}
			for _, d := range st.Durations {
				w := work{role: d.Role, worst: disruption.ActionType(d.Disruption)}
				if got[w] = 0; d.Seconds != nil {
					got[w] = time.Duration(*d.Seconds) * time.Second
				}
				require.LessOrEqual(t, len(d.Samples), mostSamples)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestWhatWasLearnedOutlivesItsUpdates: each Machine has one update, and a Machine with another one, or none, has not forgotten the one before.
func TestWhatWasLearnedOutlivesItsUpdates(t *testing.T) {
	var st refitv1.ChangeManagementPolicyStatus
	for i := range 20 {
		l := newLearner(inside, &st)
		mu := took(minutes(3), 40-i, refitv1.WorkerRole, restart)
		mu.Name = "w"
		l.see(&mu)
		l.write(&st, 0)
	}
	require.Len(t, st.Durations, 1)
	require.EqualValues(t, 180, *st.Durations[0].Seconds)
	l := newLearner(inside.Add(91*24*time.Hour), &st)
	l.write(&st, 0)
	require.Empty(t, st.Durations)
}

// planned has the node have planned actions.
func planned(actions ...string) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Plan = &refitv1.PlannedWork{Material: true, WorstAction: worst(actions)}
	}
}

// learned writes into the status of the policy a that updates of workers have taken so long.
func (w *world) learned(worst disruption.ActionType, took time.Duration, n int) {
	w.T.Helper()
	p := get(w, "a", &refitv1.ChangeManagementPolicy{})
	d := refitv1.MeasuredDuration{Role: refitv1.WorkerRole, Disruption: string(worst)}
	for i := range n {
		d.Samples = append(d.Samples, refitv1.DurationSample{Machine: fmt.Sprint("m", i), FinishedAt: metav1.NewTime(inside), Seconds: int64(took / time.Second)})
	}
	d.Seconds = estimate(d.Samples, 0)
	p.Status.Durations = append(p.Status.Durations, d)
	require.NoError(w.T, w.Status().Update(w.T.Context(), p))
}

// TestTheGateKnowsHowLongItTakes asks an hour before the window closes, for what the policy expects to take two.
func TestTheGateKnowsHowLongItTakes(t *testing.T) {
	kubelet := "Restart kubelet.service"
	for name, tc := range map[string]struct {
		samples int
		machine *clusterv1.Machine
		state   states
		open    bool
		says    string
	}{
		"too few were measured":              {19, worker("w"), states{planned(kubelet)}, false, "shorter than 2h0m0s"},
		"enough were measured":               {20, worker("w"), states{planned(kubelet)}, true, "open"},
		"the node has not planned it":        {20, worker("w"), nil, false, "shorter than 2h0m0s"},
		"others were measured, with less":    {20, worker("w"), states{planned(kubelet, "Reboot")}, false, "shorter than 2h0m0s"},
		"others were measured, of this role": {20, controlPlane("w"), states{planned(kubelet)}, false, "shorter than 2h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), saturdays("a", expects("2h")), tc.machine, update("w", tc.state...))
			w.learned(disruption.Restart, minutes(10), tc.samples)
			w.Clock.SetTime(closes.Add(-time.Hour))
			d := w.ask("w")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Contains(t, d.Message, tc.says)
		})
	}
}

func TestMeasurementsAreReadAgain(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), saturdays("a", expects("7h")), worker("w"), update("w", planned(restart)))
	w.Clock.SetTime(inside.Add(time.Hour))
	require.False(t, w.ask("w").Open)
	w.learned(disruption.Restart, time.Minute, 20)
	require.False(t, w.ask("w").Open, "what was read a moment ago is good enough")
	w.Clock.SetTime(inside.Add(time.Hour + time.Minute))
	require.True(t, w.ask("w").Open)
}

// TestNothingIsClosedForEverByWhatWasMeasured: windows of eight hours, updates that were measured to take nine, and ten minutes expected.
func TestNothingIsClosedForEverByWhatWasMeasured(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{
		"w": {waiting, planned("Reboot")}, "x": {waiting, planned("Reboot")}, "reload": {planned("Reload containerd.service")},
	}, nil, saturdays("a", expects("10m")))...)
	w.learned(disruption.Reboot, 9*time.Hour, 20)
	w.Clock.SetTime(outside)
	d := w.ask("w")
	require.False(t, d.Open)
	require.EqualValues(t, opened.Sub(outside)/time.Second, d.NextChangeETASeconds, "when one may start is known")
	for _, window := range []time.Duration{0, 7 * 24 * time.Hour} {
		w.Clock.SetTime(opened.Add(window))
		require.True(t, w.admit("reload").Open, "others are not concerned")
		d = w.admit("w")
		require.True(t, d.Open, d.Message)
		require.Contains(t, d.Message, "one starts in each window")
		for _, name := range []string{"w", "x"} {
			w.edit(name, func(mu *refitv1.MachineUpdate) {
				mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
			})
			w.Clock.SetTime(opened.Add(window + time.Minute))
			d = w.admit(name)
			require.False(t, d.Open, "the window has had its one")
			require.Equal(t, schedule.NeverFits, d.Reason)
			require.Contains(t, d.Message, "the next one opens at "+text(opened.Add(window+7*24*time.Hour)))
			require.EqualValues(t, (7*24*time.Hour-time.Minute)/time.Second, d.NextChangeETASeconds)
		}
	}
}
