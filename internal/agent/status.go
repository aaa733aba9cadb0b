package agent

import (
	"context"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

// Status returns how the run for a digest stands; if another one's is under way, how that one stands, since the node is
// not idle then. An empty digest asks for the last run, whichever it was for.
func (a *Agent) Status(ctx context.Context, req node.StatusRequest) (node.Status, error) {
	if err := addressed(req.Protocol, req.Machine); err != nil {
		return node.Status{}, err
	}
	if err := a.checkMachine(req.Machine); err != nil {
		return node.Status{}, err
	}
	return a.await(ctx, req.Digest, time.Duration(req.WaitSeconds)*time.Second)
}

// await returns the status of the last run when it has ended, when nobody works on it, or when patience is at its end. Who waits
// for a node that goes down waits until the connection ends.
func (a *Agent) await(ctx context.Context, digest string, patience time.Duration) (node.Status, error) {
	look, unattended := firstLook, 0
	for {
		last, err := a.state.loadStatus()
		if err != nil {
			return node.Status{}, err
		}
		if last == nil {
			return node.Status{State: node.Idle, Digest: digest}, nil
		}
		if last.Status.State != node.Running {
			return endOf(last.Status, digest), nil
		}
		alive, err := a.state.locked(runLock)
		if err != nil {
			return node.Status{}, err
		}
		if alive {
			unattended = 0
		} else {
			unattended++
		}
		if patience <= 0 || unattended > launchChecks && !a.detail(ctx, last.Status).Rebooting {
			return a.underWay(ctx, *last, !alive)
		}
		pause := min(look, patience)
		if err := a.cfg.Clock.Wait(ctx, pause); err != nil {
			return node.Status{}, err
		}
		patience -= pause
		look = min(look*3/2, longestLook)
	}
}

// endOf returns the status of a run that has ended, as far as it is the one that is asked for.
func endOf(s node.Status, digest string) node.Status {
	if digest != "" && s.Digest != digest {
		return node.Status{State: node.Idle, Digest: digest}
	}
	return s
}

// underWay returns the status of a run that has not ended, unless it has in this moment.
func (a *Agent) underWay(ctx context.Context, run lastRun, unattended bool) (node.Status, error) {
	again, err := a.state.loadStatus()
	if err != nil {
		return node.Status{}, err
	}
	if again != nil && again.Status.State != node.Running {
		return again.Status, nil
	}
	s := a.detail(ctx, run.Status)
	if unattended && !s.Rebooting {
		s.Interrupted = true
		s.Message = "nothing works on this run at the moment; apply takes it up again at the first step that is not done"
	}
	return s, nil
}

// detail adds to a run under way what the journal knows of it.
func (a *Agent) detail(ctx context.Context, s node.Status) node.Status {
	last, err := a.state.loadStatus()
	if err != nil || last == nil {
		return s
	}
	p, err := a.state.progress(last.Offset)
	if err != nil {
		return s
	}
	s.Step, s.Done = p.last, min(len(p.done), s.Total)
	s.Notes = slices.Concat(s.Notes, p.notes)
	if p.failed != nil {
		s.Message = p.failed.Step + " failed; it is being rolled back"
	}
	if s.Rebooting, err = a.rebooting(ctx, p); err == nil && s.Rebooting {
		s.Message = "the node was asked to reboot and is not back yet"
	}
	return s
}
