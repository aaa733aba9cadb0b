package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
)

// givesUp are the ways in which a person has a node released.
var givesUp = map[string]func(*world){
	"abandoned": func(w *world) { w.annotate(refitv1.AbandonAnnotation) },
	"deleted":   func(w *world) { w.deleteUpdate() },
}

// A node is not uncordoned while a person has its lease, whoever gives the update up: pods would come to what is being maintained.
func TestANodeThatAPersonHasIsNotUncordoned(t *testing.T) {
	for name, giveUp := range givesUp {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			w.hold(true)
			w.node.applied = []node.Status{{State: node.Succeeded}}
			w.reconcile()
			w.requireFree(true)
			w.holdLease("admin/alice")
			w.reconcile()
			giveUp(w)
			w.reconcile()
			require.True(t, w.clusterNode().Spec.Unschedulable)
			st := w.update().Status
			require.NotNil(t, st.Slot, "it is out as long")
			require.Contains(t, st.Message, "admin/alice")
		})
	}
}

// An update that fails on a node whose cordon has become another's says so, and not that nobody can be asked.
func TestAFailureOnANodeThatStaysCordonedSaysWhy(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{{State: node.Failed, Token: 1, Message: "no", RolledBack: true}}
	w.node.before = func(string) {
		w.node.err = nil
		w.editNode(func(n *corev1.Node) { n.Annotations[drain.CordonedAnnotation] = "another" })
	}
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseWaiting)
	require.Equal(t, refitv1.ReasonNode, st.Reason)
	require.Contains(t, st.Message, drain.ErrOtherOwner.Error())
	require.NotContains(t, st.Message, "can't be asked")
}

// What keeps a node from being released is shown, also when it is something else than at first.
func TestAnotherReasonForStayingIsShown(t *testing.T) {
	for name, giveUp := range givesUp {
		t.Run(name, func(t *testing.T) {
			w := failed(t, false)
			w.workload.Err = workload.ErrUnavailable
			giveUp(w)
			w.reconcile()
			require.Contains(t, w.update().Status.Message, workload.ErrUnavailable.Error())
			w.workload.Err = nil
			w.editNode(func(n *corev1.Node) { n.Annotations[drain.CordonedAnnotation] = "another" })
			w.reconcile()
			require.Contains(t, w.update().Status.Message, drain.ErrOtherOwner.Error())
		})
	}
}

// A kubelet may write what is noted on its Node, which must not keep an update and its slot.
func TestAGarbledNoteOnANodeKeepsNobody(t *testing.T) {
	garble := func(w *world) {
		w.editNode(func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, protection.AddedAnnotation, "x") })
	}
	t.Run("before the work", func(t *testing.T) {
		w := planned(t, drainA)
		garble(w)
		w.reconcile()
		st := w.requirePhase(refitv1.PhaseWaiting)
		require.Equal(t, refitv1.ReasonNode, st.Reason)
		require.Contains(t, st.Message, "remove its annotation "+protection.AddedAnnotation)
	})
	t.Run("a failed update is abandoned", func(t *testing.T) {
		w := failed(t, false)
		garble(w)
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		require.Nil(t, w.update().Status.Slot)
		require.NotContains(t, w.clusterNode().Annotations, protection.AddedAnnotation)
	})
}
