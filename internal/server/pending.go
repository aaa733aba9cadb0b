package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/pending"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/slots"
)

// addPending has the manager show and measure what waits. others are the extensions that are registered as updaters; nil if refit asks none.
func addPending(ctx context.Context, mgr shard.Manager, by judges.ByPolicy, changes *changeManagement, limits slots.Limits, others *registered.Registry, engine *handlers.Engine, accesses nodeaccess.Machines) error {
	now := clock.RealClock{}
	differences := &rollback.Rollback{Writer: mgr.GetClient(), Live: machineupdate.RememberCRDs(mgr.GetAPIReader(), now)}
	view := &pending.View{
		Client: mgr.GetClient(), Gate: changes.gate, Versions: by, Limits: limits, Clock: now,
		Owners: &pending.Owners{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Updaters: by, Clock: now, Differences: differences,
			Accesses: accesses,
		},
	}
	if others != nil {
		view.Owners.Registered, view.Owners.Asker = others, asker{differences, engine}
	}
	if err := errors.Join(view.Watch(ctx, mgr.GetCache()), view.SetupWithManager(mgr)); err != nil {
		return fmt.Errorf("add what shows what waits: %w", err)
	}
	whenLeading(mgr, pending.Collector{Client: mgr.GetClient()})
	return nil
}

// asker asks registered extensions as the hooks do.
type asker struct {
	*rollback.Rollback
	*handlers.Engine
}
