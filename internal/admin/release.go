package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
)

// Release ends the hold of a Machine's node: the lease's, then the annotation's, so that a release that is interrupted leaves a
// hold that is seen. Another person's hold is released with force only, and nothing else's ever.
func (h *Holder) Release(ctx context.Context, m *clusterv1.Machine, force bool) error {
	if err := h.mine(m); err != nil && !force {
		return fmt.Errorf("%w; --force releases it nevertheless", err)
	}
	if node := m.Status.NodeRef.Name; node != "" {
		if err := h.unlock(ctx, m, node, force); err != nil {
			return err
		}
	}
	_, held := m.Annotations[refitv1.HoldAnnotation]
	if !held {
		h.say("Machine %s/%s has no hold.", m.Namespace, m.Name)
		return nil
	}
	changed := m.DeepCopy()
	for _, name := range []string{refitv1.HoldAnnotation, holdReasonAnnotation, HoldByAnnotation} {
		delete(changed.Annotations, name)
	}
	if err := h.patch(ctx, m, changed); err != nil {
		return err
	}
	h.say("Machine %s/%s is released. An update that waits for it goes on within a minute.", m.Namespace, m.Name)
	return nil
}

// unlock gives the node lease back if a person holds it.
func (h *Holder) unlock(ctx context.Context, m *clusterv1.Machine, node string, force bool) error {
	locker, err := h.locker(ctx, m)
	if err != nil {
		return err
	}
	err = locker.Unhold(ctx, node, h.Admin)
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
