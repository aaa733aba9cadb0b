package lab

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetNodesReady has the Nodes of in-memory machines be ready or not, in the API server in which Cluster API looks at them, as if their
// kubelets had reported it. The nodes themselves work all the while.
func (c *Cluster) SetNodesReady(ctx context.Context, ready bool, names ...string) error {
	kubeconfig, err := c.providedKubeconfig(ctx)
	if err != nil {
		return err
	}
	provided, _, err := c.connect(kubeconfig)
	if err != nil {
		return err
	}
	for _, name := range names {
		var n corev1.Node
		if err := provided.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return fmt.Errorf("reading node %s: %w", name, err)
		}
		before := n.DeepCopy()
		for i := range n.Status.Conditions {
			if condition := &n.Status.Conditions[i]; condition.Type == corev1.NodeReady {
				condition.Status, condition.Reason, condition.LastTransitionTime = corev1.ConditionFalse, "KubeletNotReady", metav1.Now()
				if ready {
					condition.Status, condition.Reason = corev1.ConditionTrue, "KubeletReady"
				}
			}
		}
		// The provider's API server has no subresources.
		if err := provided.Patch(ctx, &n, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("setting whether node %s is ready: %w", name, err)
		}
	}
	return nil
}
