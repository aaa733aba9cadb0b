package machineupdate

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestNodeReplacedWalk registers the Node again, under the same name, before each call with an effect. The new one is not touched by
// an update that began with the old one.
func TestNodeReplacedWalk(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	points := 0
	for nth, c := range survive(t, memoryDir(t), restartPath, nothing, -1) {
		if !nodeReplaced.applies(nth, c) {
			continue
		}
		points++
		if !walked(points) {
			continue
		}
		t.Run(fmt.Sprintf("%d/%s", nth, c), func(t *testing.T) {
			outliveNode(t, dir+"/"+strconv.Itoa(points), nth)
		})
	}
	t.Logf("%d points, one in %d was walked", points, stride())
}

func outliveNode(t *testing.T, root string, nth int) {
	w := newWalkWorld(walkContext(), t, root, restartPath, newFault(nodeReplaced, nth))
	defer w.node.end()
	w.ask()
	for w.theNode().UID != "another-uid" {
		w.round()
		w.ask()
	}
	fresh, commands := w.theNode(), len(w.commands())
	for range 10 {
		w.round()
		w.ask()
	}
	st := w.update().Status
	if st.Phase == refitv1.PhaseSucceeded { // it had not begun, or had ended
		require.NotNil(t, st.Admission)
		return
	}
	require.Equal(t, refitv1.PhaseFailed, st.Phase, st.Message)
	require.Equal(t, "NodeReplaced", st.Reason, st.Message)
	require.Nil(t, st.Node)
	require.Len(t, w.commands(), commands, "nobody connects")
	require.Empty(t, w.theNode().Annotations)
	require.Equal(t, fresh.ResourceVersion, w.theNode().ResourceVersion)
}

// commands are the calls that reached for the machine.
func (w *walkWorld) commands() []call {
	var out []call
	for _, c := range *w.plan.calls {
		if c.place == machineItself {
			out = append(out, c)
		}
	}
	return out
}
