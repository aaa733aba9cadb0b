package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodeobject"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// writeAttempts is how often a write of the Node is tried when others write at the same time.
const writeAttempts = 5

// nodeObject returns what the Node is to be. Where kubeadm does not make the machine, that is not refit's to say.
func (u *update) nodeObject(d updaters.Desired, was *kubeadm.Registration) *nodeobject.Object {
	o := &nodeobject.Object{Was: was, Records: u.mu.Status.NodeRecords, Refuse: u.OnConflict == node.Refuse}
	o.Taint = func() ([]disruption.Action, error) { return u.selected.Rules.Domain(disruption.Taints) }
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		o.Want.LabelsUnknown, o.Want.TaintsUnknown = true, true
		return o
	}
	spec := kubeadmconfig.Mapping(d.BootstrapConfig)
	o.Want = kubeadm.OfSpec(spec, d.ControlPlane || kubeadm.ControlPlane(spec)).Registration()
	return o
}

// planNode adds to a plan what the Node itself takes, or says what the update waits for.
func (u *update) planNode(ctx context.Context, plan *node.Plan) (*wait, error) {
	n, at := u.occupied.held.Seen()
	if u.Clock.Since(at) >= readFor {
		var err error
		if n, err = u.readNode(ctx); err != nil {
			return u.stepError(ctx, err, true)
		}
	}
	u.runs = n.Status.NodeInfo.KubeletVersion
	u.object.Plan(n, plan)
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

// nodeChanges returns those of an update's changes that are of the Node itself.
func nodeChanges(changes []refitv1.Change) []refitv1.Change {
	var out []refitv1.Change
	for _, c := range changes {
		if c.Kind == string(nodeobject.Kind) {
			out = append(out, c)
		}
	}
	return out
}

// bringNode brings labels and taints to the Node, after all else was done, and looks whether they are there. What it changes is in the
// update's status before it is on the Node. It can be repeated. Where nothing is to be changed nobody is asked who has a say in the Node.
func (u *update) bringNode(ctx context.Context) (*wait, error) { //nolint:cyclop // one thing that can be in the way after the other
	name := u.regarding.Status.NodeRef.Name
	for range writeAttempts {
		if w := u.mayByLease(false); w != nil {
			return w, nil
		}
		n, err := u.readNode(ctx)
		if err != nil {
			return u.stepError(ctx, err, true)
		}
		before := n.DeepCopy()
		e := u.object.Edit(n)
		if len(e.Done) > 0 || e.Records != nil {
			if w, err := u.may(ctx, false); w != nil || err != nil {
				return w, err
			}
			if err := u.tellNode(ctx, e); err != nil {
				return nil, err
			}
			n, err = u.writeNode(ctx, e, before, n)
		}
		switch {
		case apierrors.IsConflict(err):
			continue
		case errors.Is(err, errNode):
			return notVerified(err.Error()), nil
		case err != nil:
			return u.stepError(ctx, err, true)
		}
		u.notes, u.seen.Brought = append(u.notes, e.Notes...), true
		u.shown, u.marks.Node = n, protection.MetadataOf(corev1.SchemeGroupVersion.WithKind("Node"), &n.ObjectMeta)
		return nil, nil
	}
	return unanswered(fmt.Errorf("write Node %s: others wrote it at the same time, %d times", name, writeAttempts)), nil
}

// writeNode writes the Node, and returns it as it is then.
func (u *update) writeNode(ctx context.Context, e *nodeobject.Edit, before, n *corev1.Node) (*corev1.Node, error) {
	if err := u.occupied.cluster.Client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("write Node %s: %w", before.Name, err)
	}
	shown, err := u.readNode(ctx)
	if err != nil {
		return nil, err
	}
	if missing := e.Missing(shown); len(missing) > 0 {
		return nil, fmt.Errorf("%w on Node %s: something changes what refit has written: %s", errNode, shown.Name, strings.Join(missing, ", "))
	}
	return shown, nil
}

// tellNode shows in the update that the Node is changed, and keeps what tells refit's record on it from another's.
func (u *update) tellNode(ctx context.Context, e *nodeobject.Edit) error {
	actions, err := u.object.Actions(e)
	if err != nil {
		return err
	}
	if e.Records != nil {
		u.object.Records = e.Records
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.NodeRecords = u.object.Records
		if len(e.Done) == 0 {
			return
		}
		s.Step, s.Message = "node", fmt.Sprintf("changing Node %s: %s", u.regarding.Status.NodeRef.Name, strings.Join(e.Done, ", "))
		if len(nodeChanges(s.Changes)) == 0 {
			s.Changes = append(s.Changes, refitv1.Change{Kind: string(nodeobject.Kind), Name: u.regarding.Status.NodeRef.Name, Operation: string(node.Write), Conflict: e.Conflict})
		}
		s.WorstAction = worstOf(append(slices.Clip(actions), disruption.Action{Type: disruption.ActionType(cmp.Or(s.WorstAction, string(disruption.None)))}))
		for _, a := range actions {
			if a.Type != disruption.None && !slices.Contains(s.Actions, a.String()) {
				s.Actions = append(s.Actions, a.String())
			}
		}
	})
}
