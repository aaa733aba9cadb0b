package agent

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// Watch has the agent resume a run that nobody works on, also after a boot.
type Watch interface {
	Arm(ctx context.Context) error
	// Armed reports whether what Arm has made is there.
	Armed() bool
	// Disarm takes away what Arm has made, and what one that has failed has left.
	Disarm(ctx context.Context) error
}

// Resume takes up a run that has changed the way in, and that nobody works on. Where there is none, it is not watched over any more.
func (a *Agent) Resume(ctx context.Context) error {
	last, err := a.watched(ctx)
	if err != nil || last == nil {
		return err
	}
	alive, err := a.state.locked(runLock)
	if err != nil || alive {
		return err
	}
	p, err := a.state.progress(last.Offset)
	if err != nil || !p.started[stepArm] { // what has called is from before that run, which has changed nothing yet
		return err
	}
	if down, err := a.rebooting(ctx, p); down || err != nil {
		return err
	}
	_, err = a.Run(ctx)
	return err
}

// watched returns the run that is watched over. Where there is none, the watch ends. Nobody begins a run meanwhile: else it would be the
// watch over that one which ends.
func (a *Agent) watched(ctx context.Context) (*lastRun, error) {
	if err := a.state.create(); err != nil {
		return nil, err
	}
	release, err := a.state.lock(claimLock)
	if err != nil {
		return nil, err
	}
	defer release()
	last, err := a.state.loadStatus()
	if err != nil || last != nil && last.Status.State == node.Running && last.Guarded {
		return last, err
	}
	return nil, a.disarm(ctx)
}

// arm has the node take up this run by itself, whatever happens to this process, to the node or to refit.
func (a *Agent) arm(ctx context.Context) error {
	if _, _, err := uptimeOf(a.root); err != nil {
		return err
	}
	if err := a.state.reserve(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	return a.cfg.Watch.Arm(ctx)
}

// disarm ends what arm has begun. What remains does so itself when it finds no run under way.
func (a *Agent) disarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	return errors.Join(a.cfg.Watch.Disarm(ctx), a.disk.Remove(a.state.path(reserveFile)))
}

// newWatch returns what watches over runs on this node.
func newWatch(cfg Config, d host.Disk) Watch {
	if !hasSystemd(cfg.Root) || cfg.Executable == "" || cfg.Units == nil {
		return unwatched{}
	}
	return timer{cfg: cfg, disk: d}
}

// unwatched is for nodes without systemd: there only the process that works on a run rolls it back.
type unwatched struct{}

// Arm implements Watch.
func (unwatched) Arm(context.Context) error { return nil }

// Armed implements Watch.
func (unwatched) Armed() bool { return false }

// Disarm implements Watch.
func (unwatched) Disarm(context.Context) error { return nil }
