package host

import (
	"context"
	"time"
)

// limited gives up on a service manager that does not answer.
type limited struct {
	units Units
	after time.Duration
}

var _ Units = limited{}

// Limit returns units of which no call goes on without end: one that has no deadline gets one. A systemd that hangs then fails what it is
// asked for, and is not waited for.
func Limit(units Units, after time.Duration) Units {
	if units == nil {
		return nil
	}
	return limited{units, after}
}

// Show implements Units.
func (l limited) Show(ctx context.Context, unit string) (UnitState, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return l.units.Show(ctx, unit)
}

// Do implements Units.
func (l limited) Do(ctx context.Context, verb, unit string) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return l.units.Do(ctx, verb, unit)
}

// System implements Units.
func (l limited) System(ctx context.Context) (string, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return l.units.System(ctx)
}

func (l limited) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.after)
}
