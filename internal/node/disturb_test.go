package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
)

// TestNoneDoesNotMakeAChangeQuiet: what interrupts by itself disturbs the node, whatever a policy says.
func TestNoneDoesNotMakeAChangeQuiet(t *testing.T) {
	none := []disruption.Action{{Type: disruption.None}}
	quiet := map[node.Kind]bool{
		node.FileKind: true, node.UnitKind: true, node.NTPKind: true, node.UserKind: true,
		node.KubeletKind: true, node.KubeletConfigKind: true, // nothing restarts the kubelet but an action
		node.ControlPlaneKind: false, node.VersionKind: false,
	}
	refs := nodetest.Refs()
	require.Len(t, refs, len(quiet))
	for _, ref := range refs {
		require.Contains(t, quiet, ref.Kind)
		change := node.Change{Ref: ref, Operation: node.Write, Actions: none}
		plan := node.Plan{Changes: []node.Change{change}, Actions: none}
		require.Equal(t, !quiet[ref.Kind], plan.Disturbs(), ref.Kind)
		require.Equal(t, !quiet[ref.Kind], plan.Interrupts(), ref.Kind)
		require.False(t, plan.Drains() || plan.Reboots(), "the pods stay: %s", ref.Kind)

		change.Switches = true
		require.True(t, node.Plan{Changes: []node.Change{change}, Actions: none}.Disturbs(), "a unit is started or stopped: %s", ref.Kind)
		plan.Actions = []disruption.Action{{Type: disruption.DaemonReload}}
		require.True(t, plan.Disturbs(), ref.Kind)
		require.Equal(t, !quiet[ref.Kind], plan.Interrupts(), ref.Kind)
	}
	require.True(t, node.FileRef("/etc/kubernetes/manifests/app.yaml").Interrupts(), "the kubelet runs the pod again")
	require.False(t, node.FileRef("/etc/kubernetes/manifests/more/app.yaml").Interrupts(), "the kubelet does not look there")
	require.False(t, node.Plan{}.Disturbs())
}
