package workloadtest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UID returns that of the Node of a name.
func UID(name string) types.UID { return types.UID("uid-of-" + name) }

// Node returns a Node that is ready.
func Node(name string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: UID(name)}}
	n.Status.NodeInfo.KubeletVersion = KubeletVersion
	Ready(corev1.ConditionTrue)(n)
	for _, e := range edits {
		e(n)
	}
	return n
}

// Ready returns what sets a Node's Ready condition, which is not the only one.
func Ready(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status},
		}
	}
}

// IsReady reports whether a Node's Ready condition is True.
func IsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
