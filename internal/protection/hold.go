package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/lease"
)

// holdHook has Cluster API wait before it drains the node of a Machine that a person holds. It is another one than that of updates,
// so that neither releases what the other keeps.
const holdHook = preDrainHook + "-hold"

// heldMachineMarkers keep a held Machine from being remediated, and what deletes it (a scale-down, a rollout, a person) waiting.
var heldMachineMarkers = []marker{
	{key: clusterv1.MachineSkipRemediationAnnotation, value: owner},
	{key: holdHook, value: owner},
}

// HoldMachine adds to a Machine what keeps Cluster API from taking it while a person holds it. The caller writes it, with the hold
// itself, so that there is no hold without it. It returns ErrDeleting for a Machine whose deletion nothing keeps any more.
func HoldMachine(obj metav1.Object) error {
	added, err := holds.recordOf(obj)
	if err != nil {
		return err
	}
	if err := deleting(obj); err != nil && !slices.Contains(added.keys, holdHook) {
		return err
	}
	return holds.mark(obj, heldMachineMarkers, obj.GetUID())
}

// HasHold reports whether HoldMachine has added something to the Machine that is still noted.
func HasHold(obj metav1.Object) bool {
	_, noted := obj.GetAnnotations()[HoldAddedAnnotation]
	return noted
}

// UnholdMachine takes away from a Machine what HoldMachine has added. The caller writes it.
func UnholdMachine(obj metav1.Object) error { return holds.unmark(obj, heldMachineMarkers) }

// HeldNodes marks Nodes of a workload cluster that people hold.
type HeldNodes struct {
	// Client is the workload cluster's, and reads from its API server.
	Client client.Client
}

// Mark keeps remediators and autoscalers off a Node while the Machine is held. It returns lease.ErrNodeGone or ErrDeleting for a Node
// that can't be kept.
func (h *HeldNodes) Mark(ctx context.Context, node string, machine types.UID) error {
	t, err := h.target(ctx, node)
	if err == nil {
		err = t.change(ctx, func(obj *metav1.PartialObjectMetadata) error {
			if err := deleting(obj); err != nil {
				return err
			}
			return holds.mark(obj, nodeMarkers, machine)
		})
	}
	if err != nil {
		return fmt.Errorf("keep others off Node %s: %w", node, err)
	}
	return nil
}

// ReleaseNode takes away what Mark has added. A Node that is gone has nothing to take away.
func (h *HeldNodes) ReleaseNode(ctx context.Context, node string) error {
	t, err := h.target(ctx, node)
	if err == nil {
		err = t.change(ctx, func(obj *metav1.PartialObjectMetadata) error { return holds.unmark(obj, nodeMarkers) })
	}
	if err != nil && !errors.Is(err, lease.ErrNodeGone) && !errors.Is(err, lease.ErrNodeReplaced) {
		return fmt.Errorf("release Node %s: %w", node, err)
	}
	return nil
}

// target is the Node that has the name now.
func (h *HeldNodes) target(ctx context.Context, name string) (target, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	switch err := h.Client.Get(ctx, client.ObjectKey{Name: name}, obj); {
	case apierrors.IsNotFound(err):
		return target{}, lease.ErrNodeGone
	case err != nil:
		return target{}, fmt.Errorf("read it: %w", err)
	}
	return (&Protector{Workload: h.Client}).node(Node{Name: name, UID: obj.UID}), nil
}
