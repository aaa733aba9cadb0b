package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// stageLock is held by whoever brings a release of Kubernetes to the node.
	stageLock = "stage.lock"
	// stageFile is where it is written what is to be brought, and how far that has come.
	stageFile = "stage.json"
	// stageTimeout is how long a release may take to come. A slow line takes an hour for the images of a control plane; a program that hangs
	// would keep the lock, and with it everybody who asks for a release, for ever. What has come until then stays, so another try goes on.
	stageTimeout = 2 * time.Hour
)

// staging is a release that is brought to the node, by a process of its own.
type staging struct {
	Source node.Source      `json:"source"`
	Status node.StageStatus `json:"status"`
	// Told reports that who asked knows of the failure: whoever asks again wants another try.
	Told bool `json:"told,omitempty"`
}

// Stage brings a release of Kubernetes to the node's disk and verifies it, which disturbs nothing, and waits for the end as long as the
// request says. It can be called again at any time: what is under way is waited for, what was interrupted or has failed goes on where
// it stopped, and what is there is not fetched again.
func (a *Agent) Stage(ctx context.Context, req node.StageRequest) (node.StageStatus, error) {
	if err := addressed(req.Protocol, req.Machine); err != nil {
		return node.StageStatus{}, err
	}
	if err := a.checkMachine(req.Machine); err != nil {
		return node.StageStatus{}, err
	}
	if err := a.state.create(); err != nil {
		return node.StageStatus{}, err
	}
	done, err := a.launchStage(ctx, req.Source)
	if err != nil || done {
		return node.StageStatus{State: node.Staged, Version: req.Source.Version}, err
	}
	return a.awaitStage(ctx, time.Duration(req.WaitSeconds)*time.Second)
}

// launchStage has a process bring the release, unless there is one or all is there.
func (a *Agent) launchStage(ctx context.Context, source node.Source) (done bool, err error) {
	free, err := a.state.lock(claimLock)
	if err != nil {
		return false, err
	}
	defer free()
	alive, err := a.state.locked(stageLock)
	if err != nil || alive {
		return false, err
	}
	missing, err := a.releases.Missing(source)
	if err != nil || len(missing) == 0 {
		return err == nil, err
	}
	var last staging
	if known, err := a.state.load(stageFile, &last); err != nil {
		return false, err
	} else if known && last.Status.State == node.StageFailed && !last.Told {
		return false, nil
	}
	s := staging{Source: source, Status: node.StageStatus{
		State: node.Staging, Version: source.Version, Message: "about to fetch " + strings.Join(missing, ", "),
	}}
	if err := a.state.save(stageFile, s); err != nil {
		return false, err
	}
	name := fmt.Sprintf("refit-stage-%s-%d", strings.ReplaceAll(source.Version, "+", "-"), a.cfg.Clock.Now().Unix())
	return false, a.cfg.Launcher.Launch(ctx, name, verbStageRun)
}

// awaitStage returns how staging stands when it has ended, when nobody works on it, or when patience is at its end.
func (a *Agent) awaitStage(ctx context.Context, patience time.Duration) (node.StageStatus, error) {
	unattended := 0
	for {
		var s staging
		if _, err := a.state.load(stageFile, &s); err != nil {
			return node.StageStatus{}, err
		}
		alive, err := a.state.locked(stageLock)
		switch {
		case err != nil:
			return node.StageStatus{}, err
		case alive:
			unattended = 0
		case s.Status.State != node.Staging:
			return a.tellStage(s)
		default:
			unattended++
		}
		if patience <= 0 || unattended > launchChecks {
			return s.Status, nil
		}
		pause := min(longestLook, patience)
		if err := a.cfg.Clock.Wait(ctx, pause); err != nil {
			return node.StageStatus{}, err
		}
		patience -= pause
	}
}

// tellStage returns how staging has ended, and notes that a failure was told.
func (a *Agent) tellStage(s staging) (node.StageStatus, error) {
	if s.Status.State != node.StageFailed {
		return s.Status, nil
	}
	s.Told = true
	return s.Status, a.state.save(stageFile, s)
}

// RunStage brings what Stage has asked for. If somebody else does already it waits for that one's end, and does nothing more. A run that is
// under way does not keep it off: who asks for a release goes on to Apply only when that is there, and Apply takes up a run that was
// interrupted.
func (a *Agent) RunStage(ctx context.Context) (node.StageStatus, error) {
	free, err := a.state.lock(stageLock)
	if err != nil {
		return node.StageStatus{}, err
	}
	defer free()
	var s staging
	if _, err := a.state.load(stageFile, &s); err != nil || s.Status.State != node.Staging {
		return s.Status, err
	}
	tell := func(what string) {
		s.Status.Message = what
		_ = a.state.save(stageFile, s) // people miss a line, no more
	}
	controlPlane := a.root.Find("/etc/kubernetes/manifests/kube-apiserver.yaml") != ""
	err = within(ctx, stageTimeout, func(ctx context.Context) error {
		return guard(func() error { return a.bring(ctx, s.Source, controlPlane, tell) })
	})
	s.Status.State, s.Status.Message = node.Staged, ""
	if err != nil {
		s.Status.State, s.Status.Message = node.StageFailed, err.Error()
	}
	return s.Status, a.state.save(stageFile, s)
}

// bring brings a release. A run that has not ended, be it interrupted, may need what is there to go on, or to go back.
func (a *Agent) bring(ctx context.Context, source node.Source, controlPlane bool, tell func(string)) error {
	last, err := a.state.loadStatus()
	if err != nil {
		return err
	}
	if running(last) {
		return a.releases.StageBesideRun(ctx, source, controlPlane, tell)
	}
	return a.releases.Stage(ctx, source, controlPlane, tell)
}

// within does something that has to come to an end.
func within(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("it did not come to an end within %s and was stopped; it goes on from there when it is asked for again: %w", limit, err)
	}
	return err
}

// releases are those of Kubernetes on the node's disk.
type releases interface {
	Missing(src node.Source) ([]string, error)
	Stage(ctx context.Context, src node.Source, controlPlane bool, tell func(string)) error
	// StageBesideRun disturbs no run that is under way.
	StageBesideRun(ctx context.Context, src node.Source, controlPlane bool, tell func(string)) error
}

var _ releases = (*release.Store)(nil)
