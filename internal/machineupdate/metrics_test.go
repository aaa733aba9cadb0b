package machineupdate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
)

func TestHowLongUpdatesAndStepsTake(t *testing.T) {
	at := func(s int) metav1.Time {
		return metav1.NewTime(managementtest.Start.Add(time.Duration(s) * time.Second))
	}
	step := func(class string, from, until int, failed bool) node.StepTime {
		return node.StepTime{Step: class, Class: class, StartedAt: at(from).Time, FinishedAt: at(until).Time, Failed: failed}
	}
	r := prometheus.NewPedanticRegistry()
	m := NewMetrics(r)
	status := func(phase refitv1.Phase, finished int, change func(*refitv1.MachineUpdateStatus)) *refitv1.MachineUpdateStatus {
		s := &refitv1.MachineUpdateStatus{Phase: phase, StartedAt: new(at(0)), FinishedAt: new(at(finished)), Plan: &refitv1.PlannedWork{Disruption: "Restart"}}
		change(s)
		return s
	}
	m.finished(status(refitv1.PhaseSucceeded, 40, func(s *refitv1.MachineUpdateStatus) {
		s.Admission = &refitv1.Admission{AdmittedAt: at(10)}
	}), node.Status{Steps: []node.StepTime{step("Write", 11, 12, false), step("Restart", 12, 15, false), {Step: "verify"}, {Step: "x", Class: "Reboot"}}})
	m.finished(status(refitv1.PhaseFailed, 25, func(s *refitv1.MachineUpdateStatus) { // rolled back
		s.Starts = []metav1.Time{at(5)}
	}), node.Status{Steps: []node.StepTime{step("Restart", 12, 14, true)}})
	m.finished(status(refitv1.PhaseFailed, 9, func(s *refitv1.MachineUpdateStatus) { // it never began; an earlier one has
		s.Starts, s.Plan = []metav1.Time{at(-100)}, nil
	}), node.Status{})

	sums := func(name string) map[string]float64 {
		families, err := r.Gather()
		require.NoError(t, err)
		all := map[string]float64{}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, one := range f.Metric {
				var labels []string
				for _, l := range one.Label {
					labels = append(labels, l.GetValue())
				}
				all[strings.Join(labels, " ")] = one.Histogram.GetSampleSum()
			}
		}
		return all
	}
	require.Equal(t, map[string]float64{"Restart Succeeded": 30, "Restart Failed": 20}, sums("refit_machine_update_duration_seconds"))
	require.Equal(t, map[string]float64{"Write Succeeded": 1, "Restart Succeeded": 3, "Restart Failed": 2}, sums("refit_node_step_duration_seconds"))
	hostile := node.Status{}
	for i := range 3 * node.MaxSteps {
		hostile.Steps = append(hostile.Steps, step(fmt.Sprint("made up ", i), 1, 2, false))
	}
	m.finished(status(refitv1.PhaseFailed, 9, func(s *refitv1.MachineUpdateStatus) {
		s.Admission, s.Plan.Disruption = &refitv1.Admission{AdmittedAt: at(1)}, "made up"
	}), hostile)
	require.Equal(t, map[string]float64{"Restart Succeeded": 30, "Restart Failed": 20, "Other Failed": 8}, sums("refit_machine_update_duration_seconds"))
	require.Equal(t, float64(node.MaxSteps), sums("refit_node_step_duration_seconds")["Other Succeeded"], "a node makes up no series")
	require.Equal(t, 3.0, testutil.ToFloat64(m.total.WithLabelValues("Failed")))
}
