package machineupdate

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/session"
)

// listedUpdates are listed as they are.
type listedUpdates struct {
	client.Reader
	updates []refitv1.MachineUpdate
	err     error
}

func (l *listedUpdates) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*refitv1.MachineUpdateList).Items = l.updates
	return l.err
}

func TestUpdatesAreCountedByHowTheyStand(t *testing.T) {
	all := &listedUpdates{}
	for _, of := range []struct {
		namespace string
		phase     refitv1.Phase
		reason    string
	}{
		{"fleet", refitv1.PhaseWaiting, refitv1.ReasonWindow},
		{"fleet", refitv1.PhaseWaiting, refitv1.ReasonWindow},
		{"fleet", refitv1.PhaseWaiting, refitv1.ReasonLease},
		{"fleet", refitv1.PhaseFailed, "DrainTimedOut"},
		{"fleet", refitv1.PhaseSucceeded, "of no interest"},
		{"other", refitv1.PhaseSucceeded, ""},
		{"other", "", ""},
	} {
		var mu refitv1.MachineUpdate
		mu.Namespace, mu.Status.Phase, mu.Status.Reason = of.namespace, of.phase, of.reason
		all.updates = append(all.updates, mu)
	}
	var mu refitv1.MachineUpdate
	mu.Namespace, mu.Status.Phase, mu.Status.Reason, mu.Status.ObservedAbandon = "fleet", refitv1.PhaseFailed, "NodeFailed", "seen"
	all.updates = append(all.updates, mu)
	mu.Status.Admission = &refitv1.Admission{} // it has failed again since: first in a way that takes no slot
	all.updates = append(all.updates, mu)
	mu.Status.Slot = &refitv1.Slot{}
	all.updates = append(all.updates, mu)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&Collector{Client: all})
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_machine_updates Machines by the phase of their update, and by why it waits or has failed.
# TYPE refit_machine_updates gauge
refit_machine_updates{namespace="fleet",phase="Failed",reason="Abandoned"} 1
refit_machine_updates{namespace="fleet",phase="Failed",reason="DrainTimedOut"} 1
refit_machine_updates{namespace="fleet",phase="Failed",reason="NodeFailed"} 2
refit_machine_updates{namespace="fleet",phase="Succeeded",reason=""} 1
refit_machine_updates{namespace="fleet",phase="Waiting",reason="Lease"} 1
refit_machine_updates{namespace="fleet",phase="Waiting",reason="Window"} 2
refit_machine_updates{namespace="other",phase="Pending",reason=""} 1
refit_machine_updates{namespace="other",phase="Succeeded",reason=""} 1
`), "refit_machine_updates"))

	all.err = context.DeadlineExceeded
	n, err := testutil.GatherAndCount(reg, "refit_machine_updates", "refit_drifted_machines")
	require.NoError(t, err, "what can't be read takes no other metric with it")
	require.Zero(t, n)
}

func TestSessionsAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(SessionsCollector{Sessions: &session.Queue{}})
	n, err := testutil.GatherAndCount(reg, "refit_sessions")
	require.NoError(t, err)
	require.Equal(t, 2, n, "those that run, and those that wait")
}
