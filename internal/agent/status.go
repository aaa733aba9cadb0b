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
	if req.Confirm {
		if err := a.confirmLogin(req); err != nil {
			return node.Status{}, err
		}
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
		if patience <= 0 || a.needsSomebody(ctx, *last, unattended) {
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

// needsSomebody reports whether a run goes on only if whoever waits for its end does something: logs in, or has it taken up again.
func (a *Agent) needsSomebody(ctx context.Context, last lastRun, unattended int) bool {
	return a.awaitsLogin(last) || unattended > launchChecks && !a.detail(ctx, last.Status).Rebooting
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
		s.Resumes = run.Guarded && a.cfg.Watch.Armed()
		s.Message = "nothing works on this run at the moment; apply takes it up again at the first step that is not done"
	}
	return s, nil
}

// refused returns why the node does not reboot with what was put back, if it does not.
func (p progress) refused() string {
	why := p.errors[stepRebootBack]
	if why == "" || p.done[stepRebootBack] {
		return ""
	}
	return "; the node has to reboot with what was put back, which is tried again: " + why
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
	if p.last == stepSoak && !p.done[stepSoak] {
		s.Message = a.watching()
	}
	if p.failed != nil {
		s.Message = p.failed.Step + " failed; it is being rolled back" + p.refused()
	}
	if s.AwaitsLogin = p.awaits(); s.AwaitsLogin {
		s.Message = p.awaited.Note
	}
	if s.Rebooting, err = a.rebooting(ctx, p); err == nil && s.Rebooting {
		s.Message = "the node was asked to reboot and is not back yet"
	}
	return s
}
