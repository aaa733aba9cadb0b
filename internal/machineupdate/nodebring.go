package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// writeAttempts is how often a write of the Node is tried when others write at the same time.
const writeAttempts = 5

// nodeObject returns what the Node is to be. Where kubeadm does not make the machine, that is not refit's to say.
func (u *update) nodeObject(d updaters.Desired, was *kubeadm.Registration) *nodeObject {
	o := &nodeObject{was: was, refuse: u.OnConflict == node.Refuse}
	o.taint = func() ([]disruption.Action, error) { return u.selected.Rules.Domain(disruption.Taints) }
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		o.want.LabelsUnknown, o.want.TaintsUnknown = true, true
		return o
	}
	spec := kubeadmconfig.Mapping(d.BootstrapConfig)
	o.want = kubeadm.OfSpec(spec, d.ControlPlane || kubeadm.ControlPlane(spec)).Registration()
	return o
}

// planNode adds to a plan what the Node itself takes, or says what the update waits for.
func (u *update) planNode(ctx context.Context, plan *node.Plan) (*wait, error) {
	n, err := u.readNode(ctx)
	if err != nil {
		return u.hindrance(ctx, err, true)
	}
	u.object.plan(n, plan)
	return nil, nil
}

// readNode reads the Node whose lease is held.
func (u *update) readNode(ctx context.Context) (*corev1.Node, error) {
	var n corev1.Node
	name := u.regarding.Status.NodeRef.Name
	err := u.occupied.cluster.Client.Get(ctx, types.NamespacedName{Name: name}, &n)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s", lease.ErrNodeGone, name)
	case err != nil:
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	case n.UID != u.occupied.held.NodeUID():
		return nil, fmt.Errorf("%w: %s has uid %s, and had %s", lease.ErrNodeReplaced, name, n.UID, u.occupied.held.NodeUID())
	}
	return &n, nil
}

// errNode is returned when the Node is not as it should be, and it is no use to try again.
var errNode = errors.New("the labels and taints are not as desired")

// finish brings the Node to what is desired, which comes after all that is done on it, and ends the update.
func (u *update) finish(ctx context.Context, status node.Status, notes []string) (ctrl.Result, error) {
	remarks, w, err := u.bringNode(ctx)
	switch {
	case errors.Is(err, errNode):
		return u.fail(ctx, "NotVerified", err.Error())
	case w != nil || err != nil:
		result, _, err := u.hindered(ctx, w, err)
		return result, err
	}
	changes := status.Changes
	for _, c := range nodeChanges(u.mu.Status.Changes) {
		changes = append(slices.Clip(changes), node.Change{Ref: node.Ref{Kind: nodeKind, Name: c.Name}})
	}
	message := fmt.Sprintf("the node shows what is desired: %s changed, actions: %s", changed(changes), actionsOf(u.mu.Status.Actions))
	return u.done(ctx, message, append(slices.Clip(notes), remarks...))
}

// nodeChanges returns those of an update's changes that are of the Node itself.
func nodeChanges(changes []refitv1.Change) []refitv1.Change {
	var out []refitv1.Change
	for _, c := range changes {
		if c.Kind == string(nodeKind) {
			out = append(out, c)
		}
	}
	return out
}

// bringNode brings labels and taints to the Node, after all else was done, and looks whether they are there. It returns remarks for
// people, or what the update waits for. What it changes is in the update's status before it is on the Node. It can be repeated.
func (u *update) bringNode(ctx context.Context) ([]string, *wait, error) {
	for range writeAttempts {
		if w, err := u.may(ctx, false); w != nil || err != nil {
			return nil, w, err
		}
		e, err := u.writeNode(ctx)
		switch {
		case apierrors.IsConflict(err) && e != nil:
			continue
		case errors.Is(err, errNode), err != nil && e == nil:
			return nil, nil, err
		case err != nil:
			w, err := u.hindrance(ctx, err, true)
			return nil, w, err
		}
		return e.notes, nil, nil
	}
	w, err := u.unanswered(fmt.Errorf("write Node %s: others wrote it at the same time, %d times", u.regarding.Status.NodeRef.Name, writeAttempts))
	return nil, w, err
}

// writeNode writes the Node, if there is anything to write, and reads it back. An error with an edit is the workload cluster's.
func (u *update) writeNode(ctx context.Context) (*nodeEdit, error) {
	n, err := u.readNode(ctx)
	if err != nil {
		return &nodeEdit{}, err
	}
	before := n.DeepCopy()
	e, err := u.object.edit(n)
	if err != nil {
		return nil, fmt.Errorf("%w on Node %s: %w", errNode, n.Name, err)
	}
	if len(e.done) == 0 && !e.recorded {
		return e, nil
	}
	if err := u.tellNode(ctx, e); err != nil {
		return nil, err
	}
	if err := u.occupied.cluster.Client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return e, fmt.Errorf("write Node %s: %w", before.Name, err)
	}
	shown, err := u.readNode(ctx)
	if err != nil {
		return e, err
	}
	if missing := e.missing(shown); len(missing) > 0 {
		return e, fmt.Errorf("%w on Node %s: something changes what refit has written: %s", errNode, shown.Name, strings.Join(missing, ", "))
	}
	return e, nil
}

// tellNode shows in the update that the Node is changed.
func (u *update) tellNode(ctx context.Context, e *nodeEdit) error {
	if len(e.done) == 0 {
		return nil
	}
	actions, err := u.object.actions(e)
	if err != nil {
		return err
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step, s.Message = "node", fmt.Sprintf("changing Node %s: %s", e.node.Name, strings.Join(e.done, ", "))
		if len(nodeChanges(s.Changes)) == 0 {
			s.Changes = append(s.Changes, refitv1.Change{Kind: string(nodeKind), Name: e.node.Name, Operation: string(node.Write), Conflict: e.conflict})
		}
		for _, a := range actions {
			if a.Type != disruption.None && !slices.Contains(s.Actions, a.String()) {
				s.Actions = append(s.Actions, a.String())
			}
		}
	})
}
