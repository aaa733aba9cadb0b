package protection

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/lease"
)

var (
	heldMachine = map[string]string{
		skipRemediation: "refit", holdHook: "refit",
		HoldAddedAnnotation: "machine-1:cluster.x-k8s.io/skip-remediation,pre-drain.delete.hook.machine.cluster.x-k8s.io/refit-hold",
	}
	heldNode = map[string]string{
		scaleDown: "true", doNotDisrupt: "true",
		HoldAddedAnnotation: "machine-1:cluster-autoscaler.kubernetes.io/scale-down-disabled,karpenter.sh/do-not-disrupt,remediation.medik8s.io/exclude-from-remediation",
	}
)

// hold does what refit hold does with what is there.
func (w *world) hold(ctx context.Context, t *testing.T) error {
	t.Helper()
	m := w.machine(t)
	if err := HoldMachine(m); err != nil {
		return err
	}
	require.NoError(t, w.management.Update(ctx, m))
	return (&HeldNodes{Client: w.workload}).Mark(ctx, node.Name, machine.UID)
}

func (w *world) unhold(ctx context.Context, t *testing.T) error {
	t.Helper()
	if err := (&HeldNodes{Client: w.workload}).ReleaseNode(ctx, node.Name); err != nil {
		return err
	}
	m := w.machine(t)
	if err := UnholdMachine(m); err != nil {
		return err
	}
	require.NoError(t, w.management.Update(ctx, m))
	return nil
}

// All orders in which an update and a hold can have the same node leave what was there before, and as long as either goes on, what
// keeps others off is there.
func TestUpdateAndHoldShareANode(t *testing.T) {
	foreign := map[string]string{scaleDown: "true", "a": "b"}
	const protects, releases, holdsIt, unholds = "protect", "release", "hold", "unhold"
	for name, order := range map[string][]string{
		"a hold alone":    {holdsIt, unholds},
		"each step twice": {holdsIt, holdsIt, protects, protects, releases, releases, unholds, unholds},
		"a hold meets an update, which releases the node": {protects, holdsIt, releases, unholds},
		"a hold is released before the update":            {protects, holdsIt, unholds, releases},
		"an update begins after a hold lapsed":            {holdsIt, protects, unholds, releases},
		"an update comes and goes while held":             {holdsIt, protects, releases, unholds},
		"held again while the update goes on":             {protects, holdsIt, unholds, holdsIt, releases, unholds},
		"the update begins again while held":              {protects, holdsIt, releases, protects, unholds, releases},
		"released by who has not held":                    {protects, unholds, releases},
		"the end of an update that has not run":           {holdsIt, releases, unholds},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testMachine(foreign), testNode(nil, foreign))
			p, updating, held := w.protector(), false, false
			for i, step := range order {
				switch step {
				case protects:
					require.NoError(t, protect(t.Context(), p))
					updating = true
				case releases:
					require.NoError(t, release(t.Context(), p))
					updating = false
				case holdsIt:
					require.NoError(t, w.hold(t.Context(), t))
					held = true
				case unholds:
					require.NoError(t, w.unhold(t.Context(), t))
					held = false
				}
				require.Equal(t, held, HasHold(w.machine(t)), "step %d", i)
				m, n := w.machine(t), w.node(t)
				require.Equal(t, updating, m.Annotations[preDrainHook] != "", "step %d", i)
				require.Equal(t, held, m.Annotations[holdHook] != "", "step %d", i)
				for key, there := range map[string]bool{
					skipRemediation: m.Annotations[skipRemediation] != "", excludeLabel: n.Labels[excludeLabel] != "", doNotDisrupt: n.Annotations[doNotDisrupt] != "",
				} {
					require.Equal(t, updating || held, there, "step %d: %s", i, key)
				}
				require.Equal(t, "true", n.Annotations[scaleDown], "somebody else's stays")
			}
			require.Equal(t, foreign, w.machine(t).Annotations)
			require.Equal(t, foreign, w.node(t).Annotations)
			require.Empty(t, w.node(t).Labels)
		})
	}
}

func TestHoldAndUnhold(t *testing.T) {
	w := newWorld(t, testMachine(nil), testNode(nil, nil))
	require.NoError(t, w.hold(t.Context(), t))
	require.Equal(t, heldMachine, w.machine(t).Annotations)
	require.Equal(t, heldNode, w.node(t).Annotations)
	require.Equal(t, markedLabels, w.node(t).Labels)

	t.Run("a value that somebody has changed since stays", func(t *testing.T) {
		w := newWorld(t, testMachine(merged(heldMachine, map[string]string{skipRemediation: "by bob"})), testNode(markedLabels, merged(heldNode, map[string]string{scaleDown: "false"})))
		require.NoError(t, w.unhold(t.Context(), t))
		require.Equal(t, map[string]string{skipRemediation: "by bob"}, w.machine(t).Annotations)
		require.Equal(t, map[string]string{scaleDown: "false"}, w.node(t).Annotations)
	})
	t.Run("what an update has added and somebody has changed is not the hold's", func(t *testing.T) {
		w := newWorld(t, testMachine(merged(markedMachine, map[string]string{skipRemediation: "by bob"})), testNode(nil, nil))
		require.NoError(t, w.hold(t.Context(), t))
		require.Equal(t, "machine-1:"+holdHook, w.machine(t).Annotations[HoldAddedAnnotation])
	})
}

// Notes of updates that can't be read keep no hold, and are no reason to take away what an update may need.
func TestUnreadableNotes(t *testing.T) {
	broken := map[string]string{AddedAnnotation: "x", skipRemediation: "refit"}
	w := newWorld(t, testMachine(broken), testNode(nil, broken))
	require.NoError(t, w.hold(t.Context(), t))
	require.Equal(t, "machine-1:"+holdHook, w.machine(t).Annotations[HoldAddedAnnotation])
	require.NoError(t, w.unhold(t.Context(), t))
	require.Equal(t, broken, w.machine(t).Annotations)
	require.Equal(t, "true", w.node(t).Annotations[scaleDown], "it may be an update's as well")

	w = newWorld(t, testMachine(map[string]string{HoldAddedAnnotation: "x"}), testNode(nil, map[string]string{HoldAddedAnnotation: "x"}))
	require.ErrorContains(t, HoldMachine(w.machine(t)), "remove its annotation capi-refit.dev/added-by-hold")
	require.ErrorContains(t, UnholdMachine(w.machine(t)), "capi-refit.dev/added-by-hold")
	require.ErrorContains(t, (&HeldNodes{Client: w.workload}).Mark(t.Context(), node.Name, machine.UID), "keep others off Node n1: ")
	require.ErrorContains(t, (&HeldNodes{Client: w.workload}).ReleaseNode(t.Context(), node.Name), "release Node n1: ")
}

func TestHoldOfWhatGoes(t *testing.T) {
	require.ErrorIs(t, HoldMachine(deletingMachine()), ErrDeleting)
	kept := deletingMachine()
	kept.Annotations = merged(heldMachine)
	require.NoError(t, HoldMachine(kept), "its deletion waits for the hold")

	w := newWorld(t, testMachine(nil), deletingNode())
	nodes := &HeldNodes{Client: w.workload}
	require.ErrorIs(t, nodes.Mark(t.Context(), node.Name, machine.UID), ErrDeleting)
	require.ErrorIs(t, nodes.Mark(t.Context(), "n9", machine.UID), lease.ErrNodeGone)
	require.NoError(t, nodes.ReleaseNode(t.Context(), "n9"))
	away := &HeldNodes{Client: interceptor.NewClient(w.workload, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errAway
		},
	})}
	require.ErrorIs(t, away.Mark(t.Context(), node.Name, machine.UID), errAway)
	require.ErrorIs(t, away.ReleaseNode(t.Context(), node.Name), errAway, "what can't be read is not gone")

	moved := testNode(markedLabels, merged(heldNode, map[string]string{HoldAddedAnnotation: "old:" + scaleDown}))
	w = newWorld(t, testMachine(nil), moved)
	require.NoError(t, (&HeldNodes{Client: w.workload}).ReleaseNode(t.Context(), node.Name))
	require.NotContains(t, w.node(t).Annotations, scaleDown, "a Machine that was moved had another uid")
}

// A hold whose Node goes between the two reads is over.
func TestANodeThatGoesWhileItIsReleased(t *testing.T) {
	w := newWorld(t, nil, testNode(markedLabels, heldNode))
	first := true
	c := interceptor.NewClient(w.workload, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, obj, opts...); err != nil || !first {
				return err
			}
			first = false
			return c.Delete(ctx, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: key.Name}})
		},
	})
	require.NoError(t, (&HeldNodes{Client: c}).ReleaseNode(t.Context(), node.Name))
}
