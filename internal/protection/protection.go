package protection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/lease"
)

// writeAttempts is how often a write is tried when others write at the same time.
const writeAttempts = 5

var (
	// ErrMachineGone is returned when there is no such Machine to protect.
	ErrMachineGone = errors.New("the Machine is gone")
	// ErrDeleting is returned when what is to be protected is being deleted: nothing is put in the way of that.
	ErrDeleting = errors.New("it is being deleted")
	// ErrRecord is returned when the record of refit's markers was written by somebody else.
	ErrRecord = errors.New("the record of refit's markers is not as refit writes it, so that refit's own can't be told from others'")
)

// Machine is the Machine whose node is updated. One of another uid is another Machine.
type Machine struct {
	client.ObjectKey
	UID types.UID
}

// Node is the Machine's Node. One of another uid is another Node.
type Node struct {
	Name string
	UID  types.UID
}

// Protector sets and removes markers. Only whoever has the node's lease may protect it.
type Protector struct {
	// Management is the management cluster's client.
	Management client.Client
	// Live reads from the management cluster's API server, for the case that Management reads from a cache, which may not know
	// yet of a marker. Unset: Management.
	Live client.Reader
	// Workload is the workload cluster's client, and reads from its API server.
	Workload client.Client
	// Former are UIDs that the Machine had in management clusters from which it was moved. What has one of them is its own.
	Former []types.UID
	// Known are the Machine and the Node as they were read or written last, so that they need not be read before they are written. Nil: they are read.
	Known *Known
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;patch

// Protect marks the Machine and then its Node. What is marked already is not written again. It returns ErrMachineGone,
// ErrDeleting, lease.ErrMachineReplaced, lease.ErrNodeGone or lease.ErrNodeReplaced for what can't be protected.
func (p *Protector) Protect(ctx context.Context, machine Machine, node Node) error {
	err := p.machine(machine).change(ctx, func(obj *metav1.PartialObjectMetadata) error {
		if err := deleting(obj); err != nil {
			return err
		}
		return updates.mark(obj, machineMarkers, machine.UID)
	})
	if err != nil {
		return fmt.Errorf("protect Machine %s: %w", machine.ObjectKey, err)
	}
	err = p.node(node).change(ctx, func(obj *metav1.PartialObjectMetadata) error {
		if err := deleting(obj); err != nil {
			return err
		}
		marker{key: UpdatingAnnotation, value: string(machine.UID)}.add(obj)
		return updates.mark(obj, nodeMarkers, machine.UID)
	})
	if err != nil {
		return fmt.Errorf("protect Node %s: %w", node.Name, err)
	}
	return nil
}

// Release takes away what Protect has added, from the Node and then from the Machine. A Machine or Node that is gone, or is
// another one of the name, has nothing to take away.
func (p *Protector) Release(ctx context.Context, machine Machine, node Node) error {
	err := p.node(node).change(ctx, func(obj *metav1.PartialObjectMetadata) error {
		own := append([]types.UID{machine.UID}, p.Former...)
		for _, uid := range own {
			marker{key: UpdatingAnnotation, value: string(uid)}.remove(obj)
		}
		added, err := updates.recordOf(obj)
		switch {
		case err != nil: // the node's kubelet can write it: what it no longer names stays, and must not keep the update
			delete(obj.GetAnnotations(), AddedAnnotation)
			return nil
		case !slices.Contains(own, added.machine):
			return nil // another Machine's, and its to remove
		}
		return updates.unmark(obj, nodeMarkers)
	})
	if err != nil && !absent(err) {
		return fmt.Errorf("release Node %s: %w", node.Name, err)
	}
	return p.ReleaseMachine(ctx, machine)
}

// ReleaseMachine takes away what Protect has added to the Machine, so that it can be remediated and deleted. It does not ask
// the workload cluster, which may be gone. What refit has added before the Machine was moved to this management cluster, when it
// had another uid, goes as well.
func (p *Protector) ReleaseMachine(ctx context.Context, machine Machine) error {
	err := p.machine(machine).change(ctx, func(obj *metav1.PartialObjectMetadata) error {
		return updates.unmark(obj, machineMarkers)
	})
	if err != nil && !absent(err) {
		return fmt.Errorf("release Machine %s: %w", machine.ObjectKey, err)
	}
	return nil
}

func deleting(obj metav1.Object) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return ErrDeleting
	}
	return nil
}

// absent reports whether the object that an error is about is not there.
func absent(err error) bool {
	for _, gone := range []error{ErrMachineGone, lease.ErrMachineReplaced, lease.ErrNodeGone, lease.ErrNodeReplaced} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// target is one object that has markers.
type target struct {
	writer         client.Writer
	reader         client.Reader
	gvk            schema.GroupVersionKind
	key            client.ObjectKey
	uid            types.UID
	gone, replaced error
	// known is the object as it was read or written last. Nil: that is not kept.
	known **metav1.PartialObjectMetadata
	// hasRead is set when it is read. Nil: nobody asks.
	hasRead *bool
}

func (p *Protector) machine(m Machine) target {
	t := target{
		writer: p.Management, reader: p.Live, gvk: clusterv1.GroupVersion.WithKind("Machine"), key: m.ObjectKey, uid: m.UID,
		gone: ErrMachineGone, replaced: lease.ErrMachineReplaced,
	}
	if t.reader == nil {
		t.reader = p.Management
	}
	if p.Known != nil {
		t.known, t.hasRead = &p.Known.Machine, &p.Known.Read
	}
	return t
}

func (p *Protector) node(n Node) target {
	t := target{
		writer: p.Workload, reader: p.Workload, gvk: corev1.SchemeGroupVersion.WithKind("Node"), key: client.ObjectKey{Name: n.Name}, uid: n.UID,
		gone: lease.ErrNodeGone, replaced: lease.ErrNodeReplaced,
	}
	if p.Known != nil {
		t.known, t.hasRead = &p.Known.Node, &p.Known.Read
	}
	return t
}

// change writes what edit does to labels and annotations, if that is anything. The write is refused if the object has been
// changed, or made again, since it was read; then edit is asked again.
func (t target) change(ctx context.Context, edit func(*metav1.PartialObjectMetadata) error) error {
	if done, err := t.changeKnown(ctx, edit); done {
		return err
	}
	var err error
	for range writeAttempts {
		var before *metav1.PartialObjectMetadata
		if before, err = t.read(ctx); err != nil {
			return err
		}
		obj := before.DeepCopy()
		if err := edit(obj); err != nil {
			return err
		}
		if same(before, obj) {
			return nil
		}
		if err = t.write(ctx, obj, before); err == nil || !outdated(err) {
			return err
		}
	}
	return err
}

// changeKnown does so of the object as it is known, and reports whether that was all there is to do. One that needs no change as it is known is read.
func (t target) changeKnown(ctx context.Context, edit func(*metav1.PartialObjectMetadata) error) (done bool, err error) {
	before := t.take()
	if before == nil {
		return false, nil
	}
	obj := before.DeepCopy()
	if edit(obj) != nil || same(before, obj) {
		return false, nil
	}
	err = t.write(ctx, obj, before)
	return err == nil || !outdated(err), err
}

// outdated reports whether a write was refused because the object is not as it was read.
func outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

func same(a, b *metav1.PartialObjectMetadata) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// write writes the object, and keeps it as it is then.
func (t target) write(ctx context.Context, obj, before *metav1.PartialObjectMetadata) error {
	err := t.writer.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil && t.known != nil {
		*t.known = obj
	}
	return err
}

// read reads the object and makes sure that it is the one that is meant.
func (t target) read(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	if t.uid == "" {
		return nil, fmt.Errorf("which %s is meant can't be told without its uid", t.gvk.Kind)
	}
	if t.hasRead != nil {
		*t.hasRead = true
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(t.gvk)
	switch err := t.reader.Get(ctx, t.key, obj); {
	case apierrors.IsNotFound(err):
		return nil, t.gone
	case err != nil:
		return nil, fmt.Errorf("read it: %w", err)
	case obj.UID != t.uid:
		return nil, fmt.Errorf("%w: it has uid %s, and had %s", t.replaced, obj.UID, t.uid)
	}
	return obj, nil
}
