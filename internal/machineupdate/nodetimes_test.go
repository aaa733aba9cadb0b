package machineupdate

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/tracing/tracingtest"
)

const day = 24 * time.Hour

// at is a time of an update that is admitted after ten seconds and ends after a minute.
func at(d time.Duration) time.Time { return managementtest.Start.Add(d) }

func admittedAfterTenSeconds() *refitv1.MachineUpdateStatus {
	return &refitv1.MachineUpdateStatus{
		Phase: refitv1.PhaseSucceeded, StartedAt: new(metav1.NewTime(at(0))), FinishedAt: new(metav1.NewTime(at(time.Minute))),
		Admission: &refitv1.Admission{AdmittedAt: metav1.NewTime(at(10 * time.Second))},
	}
}

// nodesTimes are what nodes say of a run of one step, which is a reboot, and how long the step is then taken to be.
var nodesTimes = map[string]struct {
	run, step [2]time.Time
	took      time.Duration
	// none is set where there is no step of which something could be said.
	none bool
}{
	"the clock is right": {
		run: [2]time.Time{at(20 * time.Second), at(50 * time.Second)}, step: [2]time.Time{at(25 * time.Second), at(45 * time.Second)}, took: 20 * time.Second,
	},
	"the clock is a day ahead all the while": {
		run: [2]time.Time{at(day), at(day + 30*time.Second)}, step: [2]time.Time{at(day + 5*time.Second), at(day + 25*time.Second)}, took: 20 * time.Second,
	},
	"the clock is a day behind all the while": {
		run: [2]time.Time{at(-day), at(-day + 30*time.Second)}, step: [2]time.Time{at(-day + 5*time.Second), at(-day + 25*time.Second)}, took: 20 * time.Second,
	},
	"the clock is set back by a day in the reboot": {
		run: [2]time.Time{at(20 * time.Second), at(50*time.Second - day)}, step: [2]time.Time{at(25 * time.Second), at(45*time.Second - day)}, took: 0,
	},
	"it was a day ahead, and is corrected in the reboot": {
		run: [2]time.Time{at(day + 20*time.Second), at(50 * time.Second)}, step: [2]time.Time{at(day + 25*time.Second), at(45 * time.Second)}, took: 0,
	},
	"it was a day behind, and is corrected in the reboot": {
		run: [2]time.Time{at(-day), at(50 * time.Second)}, step: [2]time.Time{at(-day), at(45 * time.Second)}, took: 51 * time.Second, // all the time that there was
	},
	"the step takes ten years": {
		run: [2]time.Time{at(20 * time.Second), at(50 * time.Second)}, step: [2]time.Time{at(25 * time.Second), at(3650 * day)}, took: 36 * time.Second,
	},
	"the step began at no time": {
		run: [2]time.Time{at(20 * time.Second), at(50 * time.Second)}, step: [2]time.Time{{}, at(45 * time.Second)}, none: true,
	},
}

// TestANodesTimesAreBounded has metrics and traces take what a node says: no counter goes down, and no update takes longer than it was.
func TestANodesTimesAreBounded(t *testing.T) {
	for name, test := range nodesTimes {
		t.Run(name, func(t *testing.T) {
			run := node.Status{
				State: node.Succeeded, Token: 1, StartedAt: test.run[0], FinishedAt: test.run[1],
				Steps: []node.StepTime{{Step: "reboot", Class: "Reboot", StartedAt: test.step[0], FinishedAt: test.step[1]}},
			}
			r := prometheus.NewPedanticRegistry()
			NewMetrics(r).finished(admittedAfterTenSeconds(), run)
			families, err := r.Gather()
			require.NoError(t, err)
			found := false
			for _, f := range families {
				if f.GetName() == "refit_node_step_duration_seconds" {
					found = true
					require.InDelta(t, test.took.Seconds(), f.Metric[0].Histogram.GetSampleSum(), 0.001)
					require.GreaterOrEqual(t, f.Metric[0].Histogram.GetSampleSum(), 0.0)
				}
			}
			require.Equal(t, !test.none, found)

			w := newWorld(t)
			receiver := tracingtest.NewReceiver(t)
			tracer, shutdown := receiver.NewTracer(t, "refit-1")
			w.reconciler.Tracer = tracer
			w.clock.SetTime(at(time.Minute))
			mu := &refitv1.MachineUpdate{Status: *admittedAfterTenSeconds()}
			mu.Status.FinishedAt = nil // it is told before it is written
			u := &update{Reconciler: w.reconciler, mu: mu}
			u.noteRun(run)
			u.exportSpans()
			shutdown()
			spans := receiver.Spans()
			if !test.none {
				require.Len(t, spans, 2)
			}
			for _, s := range spans {
				require.GreaterOrEqual(t, s.StartTimeUnixNano, uint64(at(10*time.Second).UnixNano()), s.Name)
				require.LessOrEqual(t, s.StartTimeUnixNano, s.EndTimeUnixNano, s.Name)
				require.LessOrEqual(t, s.EndTimeUnixNano, uint64(at(61*time.Second).UnixNano()), s.Name)
			}
		})
	}
}

// TestNoUpdateTakesLessThanNoTime: the server that ends it may have another clock than the one that has admitted it.
func TestNoUpdateTakesLessThanNoTime(t *testing.T) {
	s := admittedAfterTenSeconds()
	s.FinishedAt = new(metav1.NewTime(at(0)))
	took, ok := duration(s)
	require.True(t, ok)
	require.Zero(t, took)
	run := believed(node.Status{StartedAt: at(0), FinishedAt: at(time.Second)}, s, at(0))
	require.False(t, run.FinishedAt.Before(run.StartedAt))
	require.False(t, run.FinishedAt.After(at(2*time.Second)))
}
