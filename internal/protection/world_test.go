package protection

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

const (
	skipRemediation = clusterv1.MachineSkipRemediationAnnotation
	excludeLabel    = "remediation.medik8s.io/exclude-from-remediation"
	scaleDown       = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	doNotDisrupt    = "karpenter.sh/do-not-disrupt"
)

var (
	machine = Machine{ObjectKey: client.ObjectKey{Namespace: "fleet", Name: "m1"}, UID: "machine-1"}
	node    = Node{Name: "n1", UID: "node-1"}
)

// world is a Machine and its Node, each in its cluster. Either may be missing.
type world struct {
	management, workload client.WithWatch
	// writes counts the patches that were sent.
	writes int
	// onPatch is called before a patch reaches the object; its error is the answer.
	onPatch func(obj client.Object) error
}

func newWorld(t *testing.T, m *clusterv1.Machine, n *corev1.Node) *world {
	t.Helper()
	var machines, nodes []client.Object
	if m != nil {
		machines = append(machines, m)
	}
	if n != nil {
		nodes = append(nodes, n)
	}
	now := clocktesting.NewFakePassiveClock(managementtest.Start)
	return &world{management: managementtest.New(machines...), workload: workloadtest.NewClient(now, nodes...)}
}

func (w *world) protector() *Protector {
	intercept := func(c client.WithWatch) client.Client {
		return workloadtest.Before(c, func(verb string, obj runtime.Object) error {
			if verb != "patch" {
				return nil
			}
			w.writes++
			if w.onPatch == nil {
				return nil
			}
			return w.onPatch(obj.(client.Object))
		})
	}
	return &Protector{Management: intercept(w.management), Workload: intercept(w.workload)}
}

func (w *world) machine(t *testing.T) *clusterv1.Machine {
	t.Helper()
	m := &clusterv1.Machine{}
	require.NoError(t, w.management.Get(t.Context(), machine.ObjectKey, m))
	return m
}

func (w *world) node(t *testing.T) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	require.NoError(t, w.workload.Get(t.Context(), client.ObjectKey{Name: node.Name}, n))
	return n
}

func testMachine(annotations map[string]string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID, Annotations: maps.Clone(annotations),
	}}
}

func testNode(labels, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, Labels: maps.Clone(labels), Annotations: maps.Clone(annotations),
	}}
}

// merged returns the union of maps, the later ones over the earlier.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
