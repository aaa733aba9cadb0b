package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

func TestUnsafeEntriesAreNoted(t *testing.T) {
	w := newWorld(t)
	const note = "NodeDisruptionPolicy weak says unsafe: true of files[/etc/app]"
	base := w.reconciler.Disruptions
	w.reconciler.Disruptions = disruptionsFunc(func(m *clusterv1.Machine) (*nodedisruption.Selected, error) {
		selected, err := base.Machine(t.Context(), m)
		if err != nil {
			return nil, err
		}
		weak := *selected
		weak.Unsafe = []string{note}
		return &weak, nil
	})
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Contains(t, w.update().Status.Notes, note)
}
