package handlers

import (
	"context"
	"slices"

	"github.com/capi-refit/refit/updaters"
)

// Accesses know which nodes refit can be told to reach.
type Accesses interface {
	// Without returns why refit has no way to the node of a Machine, or to one of those of a MachineSet; empty if it has. An error says that this can't
	// be told now.
	Without(ctx context.Context, namespace, name string, set bool) (why string, err error)
}

// WithAccesses has nothing be claimed for Machines to whose nodes refit has no way, instead of an update that could only wait.
func (h *CanUpdate) WithAccesses(a Accesses) *CanUpdate {
	h.accesses = a
	return h
}

// reachable returns the verdict, in which nothing is claimed if refit has no way to the node.
func (h *CanUpdate) reachable(ctx context.Context, v *verdict) (*verdict, error) {
	if h.accesses == nil || len(v.decision) == 0 || !v.decision.InPlace() {
		return v, nil
	}
	why, err := h.accesses.Without(ctx, v.namespace, v.name, v.template)
	if err != nil || why == "" {
		return v, err
	}
	unclaimed := *v // which others may have remembered
	unclaimed.patches, unclaimed.decision = nil, slices.Clone(v.decision)
	for i, f := range unclaimed.decision {
		unclaimed.decision[i] = updaters.Verdict{Field: f.Field, By: f.Updater, Reason: why}
	}
	return &unclaimed, nil
}
