package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/lease"
)

// CordonedAnnotation on a Node says that refit has cordoned it, for the Machine whose uid is the value. It is set and removed
// by the same write as spec.unschedulable. A cordon without it is somebody else's.
const CordonedAnnotation = "capi-refit.dev/cordoned"

// writeAttempts is how often a write is tried when others write at the same time.
const writeAttempts = 5

// ErrOtherOwner is returned when a Node has the CordonedAnnotation of another Machine. It is left alone until a person has
// looked at it.
var ErrOtherOwner = errors.New("the Node is cordoned for another Machine")

// NodeRef is a Node of the workload cluster. One of the same name and another uid is another Node.
type NodeRef struct {
	Name string
	UID  types.UID
}

// Cordon marks the Node unschedulable, for the Machine whose uid owner is. ours reports whether the cordon is refit's, from now or
// from before, and so is to be undone. A cordon of somebody else serves as well: then nothing is written, and ours is false.
//
// A Node that somebody has uncordoned after refit had cordoned it is cordoned again.
//
// It returns lease.ErrNodeGone, lease.ErrNodeReplaced, ErrOtherOwner, or what went wrong. It can be repeated.
func (d *Drainer) Cordon(ctx context.Context, ref NodeRef, owner types.UID) (ours bool, err error) {
	if owner == "" {
		return false, fmt.Errorf("cordon Node %s: the uid of the Machine that it is cordoned for is missing", ref.Name)
	}
	err = d.change(ctx, ref, func(node *corev1.Node) error {
		of, annotated := node.Annotations[CordonedAnnotation]
		switch {
		case annotated && !d.owns(of, owner):
			return otherOwner(node, of)
		case !annotated && node.Spec.Unschedulable:
			ours = false
			return nil
		}
		ours = true
		node.Spec.Unschedulable = true
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[CordonedAnnotation] = string(owner)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("cordon Node %s: %w", ref.Name, err)
	}
	return ours, nil
}

// Uncordon undoes what Cordon did for the same owner. When somebody has uncordoned the Node since, only the annotation goes;
// when somebody else had cordoned it before refit came, nothing does. A Node that is gone, or registered again, has nothing to
// undo.
//
// It returns ErrOtherOwner when the Node is unschedulable and the annotation says that this is for another Machine, or what
// went wrong. It can be repeated.
func (d *Drainer) Uncordon(ctx context.Context, ref NodeRef, owner types.UID) error {
	if owner == "" {
		return fmt.Errorf("uncordon Node %s: the uid of the Machine that it was cordoned for is missing", ref.Name)
	}
	err := d.change(ctx, ref, func(node *corev1.Node) error {
		of, annotated := node.Annotations[CordonedAnnotation]
		switch {
		case !annotated:
			return nil
		case !d.owns(of, owner) && node.Spec.Unschedulable:
			return otherOwner(node, of)
		case !d.owns(of, owner):
			return nil
		}
		node.Spec.Unschedulable = false
		delete(node.Annotations, CordonedAnnotation)
		return nil
	})
	if err != nil && !errors.Is(err, lease.ErrNodeGone) && !errors.Is(err, lease.ErrNodeReplaced) {
		return fmt.Errorf("uncordon Node %s: %w", ref.Name, err)
	}
	return nil
}

// owns reports whether an annotation is that of a Machine, by the UID that it has or by one that it had.
func (d *Drainer) owns(annotation string, owner types.UID) bool {
	return annotation == string(owner) || slices.Contains(d.Former, types.UID(annotation))
}

// change writes what edit does to the Node, if that is anything. The resourceVersion guards the write: it is refused if the
// Node has been changed, or made again, since its uid was compared. Then edit is asked again.
func (d *Drainer) change(ctx context.Context, ref NodeRef, edit func(*corev1.Node) error) error {
	var err error
	for range writeAttempts {
		var node *corev1.Node
		if node, err = d.node(ctx, ref); err != nil {
			return err
		}
		before := node.DeepCopy()
		if err := edit(node); err != nil {
			return err
		}
		// Nothing but these two is edited.
		if before.Spec.Unschedulable == node.Spec.Unschedulable && before.Annotations[CordonedAnnotation] == node.Annotations[CordonedAnnotation] {
			return nil
		}
		err = d.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return fmt.Errorf("others wrote it at the same time, %d times: %w", writeAttempts, err)
}

// node reads the Node that ref is about.
func (d *Drainer) node(ctx context.Context, ref NodeRef) (*corev1.Node, error) {
	if ref.Name == "" || ref.UID == "" {
		return nil, fmt.Errorf("a Node is known by its name and its uid, and these are %q and %q", ref.Name, ref.UID)
	}
	node := &corev1.Node{}
	switch err := d.Client.Get(ctx, types.NamespacedName{Name: ref.Name}, node); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s", lease.ErrNodeGone, ref.Name)
	case err != nil:
		return nil, fmt.Errorf("read Node %s: %w", ref.Name, err)
	case node.UID != ref.UID:
		return nil, fmt.Errorf("%w: %s has uid %s, and had %s", lease.ErrNodeReplaced, ref.Name, node.UID, ref.UID)
	}
	return node, nil
}

func otherOwner(node *corev1.Node, owner string) error {
	mend := fmt.Sprintf("kubectl annotate node %s %s-", node.Name, CordonedAnnotation)
	if node.Spec.Unschedulable {
		mend = fmt.Sprintf("kubectl uncordon %s && %s", node.Name, mend)
	}
	return fmt.Errorf("%w, of uid %q; if there is no such Machine any more: %s", ErrOtherOwner, owner, mend)
}
