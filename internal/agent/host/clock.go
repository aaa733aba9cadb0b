package host

import (
	"context"
	"time"
)

// Clock tells the time and lets it pass.
type Clock interface {
	Now() time.Time
	// Wait returns after d, or with ctx's error when ctx ends before.
	Wait(ctx context.Context, d time.Duration) error
}

// WallClock is the node's own time.
type WallClock struct{}

// Now implements Clock.
func (WallClock) Now() time.Time { return time.Now().UTC() }

// Wait implements Clock.
func (WallClock) Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
