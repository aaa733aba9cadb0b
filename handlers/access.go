package handlers

import (
	"context"
	"sync"

	"github.com/capi-refit/refit/internal/inplace"
)

// Accesses know which nodes refit can be told to reach.
type Accesses interface {
	// Without returns why refit has no way to the node of a Machine, or to one of those of a MachineSet; empty if it has. An error says that this can't
	// be told now.
	Without(ctx context.Context, namespace, name string, set bool) (why string, err error)
}

// Reaching returns an Engine by which nothing is claimed for Machines to whose nodes refit has no way, instead of an update that could only wait.
func (e *Engine) Reaching(a Accesses) *Engine {
	out := *e
	out.accesses = a
	return &out
}

// reachable returns the verdict, in which nothing is claimed if refit has no way to the node.
func (e *Engine) reachable(ctx context.Context, v *verdict) (*verdict, error) {
	if e.accesses == nil || len(v.decision) == 0 || !v.decision.InPlace() {
		return v, nil
	}
	why, err := e.accesses.Without(ctx, v.namespace, v.name, v.template)
	if err != nil || why == "" {
		return v, err
	}
	unclaimed := *v // which others may have remembered
	unclaimed.patches, unclaimed.decision = nil, inplace.Unreached(v.decision, why)
	unclaimed.proposal = sync.OnceValues(unclaimed.propose)
	unclaimed.told = tellOf(unclaimed.decision, v.subject.MadeByKubeadm())
	return &unclaimed, nil
}
