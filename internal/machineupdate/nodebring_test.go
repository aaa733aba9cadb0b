package machineupdate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// labelled returns a world whose machine's specs ask for a label, and for a taint where one is named. On the node there is nothing
// to do.
func labelled(t *testing.T, taints ...corev1.Taint) *world {
	w := newWorld(t)
	w.reconciler.Disruptions = fixedRules(t, disruption.BuiltinRules())
	w.askForLabels("a=b", taints...)
	return w
}

// askForLabels has the machine's specs ask for a label and for taints, and Cluster API for the specs.
func (w *world) askForLabels(labels string, taints ...corev1.Taint) {
	var config bootstrapv1.KubeadmConfig
	require.NoError(w.t, w.Get(w.t.Context(), key, &config))
	config.Spec.JoinConfiguration.NodeRegistration.KubeletExtraArgs = []bootstrapv1.Arg{{Name: "node-labels", Value: &labels}}
	if len(taints) > 0 {
		config.Spec.JoinConfiguration.NodeRegistration.Taints = &taints
	}
	require.NoError(w.t, w.Update(w.t.Context(), &config))
	w.node.plans, w.node.applied = []node.Plan{{}}, []node.Status{{State: node.Succeeded}}
	require.False(w.t, w.ask())
}

func TestLabelsAreBroughtToTheNode(t *testing.T) {
	w := labelled(t, corev1.Taint{Key: "t", Effect: corev1.TaintEffectNoSchedule})
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	n := w.clusterNode()
	require.Equal(t, map[string]string{"a": "b"}, n.Labels)
	require.Equal(t, []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints)
	require.Equal(t, []refitv1.Change{{Kind: "Node", Name: nodeName, Operation: "Write"}}, st.Changes)
	require.Equal(t, refitv1.NotMaterial, st.Admission.Reason, "it disturbs nobody")
	require.Contains(t, st.Message, "Node n1 changed")
}

// TestATaintThatEvictsHasANodeDrained: the pods leave before the taint is there, and by their PodDisruptionBudgets.
func TestATaintThatEvictsHasANodeDrained(t *testing.T) {
	w := labelled(t, corev1.Taint{Key: "t", Effect: corev1.TaintEffectNoExecute})
	w.withPod()
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseDraining)
	require.NotNil(t, st.Slot)
	require.True(t, st.Plan.Material)
	require.Equal(t, []string{"Drain"}, st.Plan.Actions)
	n := w.clusterNode()
	require.True(t, n.Spec.Unschedulable)
	require.Empty(t, n.Spec.Taints)
	require.NotContains(t, w.node.calls, "apply")

	w.podGoes()
	w.reconcile()
	st = w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, []string{"Drain"}, st.Actions)
	n = w.clusterNode()
	require.False(t, n.Spec.Unschedulable)
	require.Equal(t, "t", n.Spec.Taints[0].Key)
}

// failing has the world's workload cluster answer patches of the Node with an error, as often as is said.
func (w *world) failing(times int, err error) {
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if _, ok := obj.(*corev1.Node); !ok || verb != "patch" || times == 0 {
			return nil
		}
		times--
		return err
	})
}

func TestANodeThatOthersWriteAtTheSameTime(t *testing.T) {
	w := labelled(t)
	w.failing(writeAttempts-1, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, nodeName, nil))
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, "b", w.clusterNode().Labels["a"])
}

func TestANodeThatCantBeWritten(t *testing.T) {
	w := labelled(t)
	w.failing(1, apierrors.NewServiceUnavailable("later"))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWorkload, "later")
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, "b", w.clusterNode().Labels["a"])
	require.Len(t, st.Changes, 1)
}

func TestANodeThatSomethingChangesBack(t *testing.T) {
	w := labelled(t)
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if n, ok := obj.(*corev1.Node); ok && verb == "patch" {
			delete(n.Labels, "a")
		}
		return nil
	})
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, "NotVerified", st.Reason)
	require.Contains(t, st.Message, "label a")
}

func TestTheNodeIsLeftWhenTheAgentFails(t *testing.T) {
	w := labelled(t)
	w.node.applied = []node.Status{{State: node.Failed, Token: 1, Message: "no", RolledBack: true}}
	w.reconcile()
	w.requirePhase(refitv1.PhaseFailed)
	require.NotContains(t, w.clusterNode().Labels, "a")
}

// TestAForgedRecordOnTheNode: refit goes by the record that it has written itself, and by no other that the node's kubelet puts there.
func TestAForgedRecordOnTheNode(t *testing.T) {
	const record = "capi-refit.dev/applied-labels-and-taints"
	w := labelled(t)
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, st.NodeRecords, 1)

	require.JSONEq(t, `{"labels":{"a":"b"}}`, w.clusterNode().Annotations[record])
	w.editNode(func(n *corev1.Node) {
		n.Annotations[record] = `{"labels":{"a":"b"},"taints":[{"key":"dedicated","effect":"NoSchedule"}]}`
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	})
	w.askForLabels("a=c")
	w.reconcile()
	st = w.requirePhase(refitv1.PhaseSucceeded)
	n := w.clusterNode()
	require.Equal(t, "c", n.Labels["a"])
	require.Len(t, n.Spec.Taints, 1, "somebody else's")
	require.JSONEq(t, `{"labels":{"a":"c"}}`, n.Annotations[record])
	require.Contains(t, strings.Join(st.Notes, "; "), "not as refit has written it")
}

func TestTheControlPlaneIsKnownByItsLabel(t *testing.T) {
	w := newWorld(t)
	w.machine(func(m *clusterv1.Machine) { m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""} })
	require.True(t, w.specs().desired.ControlPlane)
}
