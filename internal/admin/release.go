package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
)

// Release ends the hold of a Machine's node: the lease's, then the Node's, then the Machine's, so that a release that is interrupted
// leaves a hold that is seen, and can be repeated. What is gone has nothing to release. Another person's hold is released with force
// only, and nothing else's ever.
func (h *Holder) Release(ctx context.Context, m *clusterv1.Machine, force bool) error {
	if err := h.mine(m); err != nil && !force {
		return fmt.Errorf("%w; --force releases it nevertheless", err)
	}
	if node := m.Status.NodeRef.Name; node != "" {
		if err := h.releaseNode(ctx, m, node, force); err != nil {
			return err
		}
	}
	if _, held := m.Annotations[refitv1.HoldAnnotation]; !held && !protection.HasHold(m) {
		h.say("Machine %s/%s has no hold.", m.Namespace, m.Name)
		return nil
	}
	switch err := onConflict(ctx, h.Client, m, func() error { return h.unhold(ctx, m, force) }); {
	case apierrors.IsNotFound(err):
		h.say("Machine %s/%s is gone, and its hold with it.", m.Namespace, m.Name)
		return nil
	case err != nil:
		return err
	}
	h.say("Machine %s/%s is released. An update that waits for it goes on within a minute.", m.Namespace, m.Name)
	return nil
}

// unhold takes the hold's annotations from a Machine.
func (h *Holder) unhold(ctx context.Context, m *clusterv1.Machine, force bool) error {
	if err := h.mine(m); err != nil && !force { // somebody may have taken it over since
		return err
	}
	changed := m.DeepCopy()
	for _, name := range []string{refitv1.HoldAnnotation, lease.HoldReasonAnnotation, lease.HoldByAnnotation} {
		delete(changed.Annotations, name)
	}
	if err := protection.UnholdMachine(changed); err != nil {
		return fmt.Errorf("have Cluster API look after Machine %s/%s again: %w", m.Namespace, m.Name, err)
	}
	return h.patch(ctx, m, changed)
}

// releaseNode releases what the hold has in the workload cluster. That cluster may be going with the Machine: what can't be released
// there does not keep a Machine that is being deleted.
func (h *Holder) releaseNode(ctx context.Context, m *clusterv1.Machine, node string, force bool) error {
	nodes, err := h.nodes(ctx, m)
	if err == nil {
		err = h.unlock(ctx, nodes, node, force)
	}
	if err == nil {
		err = nodes.ReleaseNode(ctx, node)
	}
	if err == nil || m.DeletionTimestamp.IsZero() || errors.Is(err, ErrNotYours) || ctx.Err() != nil {
		return err
	}
	h.say("The Machine is being deleted; what the hold has at node %s stays, since it can't be released there: %v", node, err)
	return nil
}

// unlock gives the node lease back if a person holds it.
func (h *Holder) unlock(ctx context.Context, locker NodeLocker, node string, force bool) error {
	err := locker.Unhold(ctx, node, h.Admin)
	var held *lease.HeldError
	if !errors.As(err, &held) {
		if err != nil {
			return fmt.Errorf("release the lease of node %s: %w", node, err)
		}
		return nil
	}
	other, person := strings.CutPrefix(held.Holder, adminPrefix)
	switch {
	case person && force:
		if err := locker.Unhold(ctx, node, other); err != nil {
			return fmt.Errorf("release the lease of node %s, which %s holds: %w", node, other, err)
		}
		h.say("The lease of node %s was held by %s, and is released.", node, held.Holder)
		return nil
	case person:
		return fmt.Errorf("%w: its lease is held by %s; --force releases it nevertheless", ErrNotYours, held.Holder)
	default:
		h.say("The lease of node %s is held by %s, and stays so.", node, held.Holder)
		return nil
	}
}
