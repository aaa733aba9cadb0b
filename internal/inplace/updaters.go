package inplace

import (
	"context"

	"github.com/capi-refit/refit/updaters"
)

// Updaters are those that judge changes of a machine. Which they are, and what they let change, can depend on the machine.
type Updaters interface {
	// For returns the updaters for a machine. It is asked for each request, so it answers from what it knows. An error has
	// Cluster API ask again; it is never a "no".
	For(ctx context.Context, s Subject) (*updaters.Registry, error)
}

// UpdatersFunc is a function that returns the updaters for a machine.
type UpdatersFunc func(ctx context.Context, s Subject) (*updaters.Registry, error)

// For implements Updaters.
func (f UpdatersFunc) For(ctx context.Context, s Subject) (*updaters.Registry, error) {
	return f(ctx, s)
}

// Always returns the same updaters for every machine.
func Always(registry *updaters.Registry) Updaters {
	return UpdatersFunc(func(context.Context, Subject) (*updaters.Registry, error) { return registry, nil })
}
