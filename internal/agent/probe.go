package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// podsFile is where it is noted what the static pods were before a run.
	podsFile = "static-pods.json"
	// podPatience is how long static pods may take to be replaced, as kubeadm gives them: an image may have to be pulled.
	podPatience = 5 * time.Minute
)

// host is the node as the packages of the kinds get it.
func (a *Agent) host() host.Host {
	return host.Host{Root: a.root, Disk: a.disk, Clock: a.cfg.Clock, Units: a.cfg.Units}
}

// notePods notes what the static pods are, if the actions have some replaced. Nothing has been written yet: which pod is the old one can't
// be told afterwards. Under a kubelet of another version the same manifest can have another hash.
func (a *Agent) notePods(ctx context.Context, plan node.Plan) error {
	if !disruption.Has(plan.Actions, disruption.StaticPodRefresh) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	note, err := staticpod.Observe(ctx, a.host())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(plan.Changes, func(c node.Change) bool { return c.Kind == node.VersionKind }) {
		note = note.Unhashed()
	}
	if err := a.noteRestarts(ctx, plan); err != nil {
		return err
	}
	return a.state.save(podsFile, note)
}

// refreshPods restarts the static pods that mount what has changed, and waits until the kubelet runs what the manifests say, after a change
// and after that was put back. For changed manifests it takes no action of its own: the kubelet watches the directory.
func (a *Agent) refreshPods(ctx context.Context, patience time.Duration) (string, error) {
	note := staticpod.Note{}
	ok, err := a.state.load(podsFile, &note)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", errors.New("what the static pods were before was not noted")
	}
	if err := a.restartPods(ctx, note, patience); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := staticpod.Await(ctx, a.host(), note); err != nil {
		return "", fmt.Errorf("not done after %s: %w (see journalctl -u %s on the node)", patience, err, kubelet.Unit)
	}
	return "", nil
}

// late says that an action has taken too long, and why if that is known: what a program says that was killed for it is not.
func late(err error, after time.Duration) error {
	var unhealthy *kubelet.UnhealthyError
	if errors.As(err, &unhealthy) {
		return fmt.Errorf("not done after %s: %w", after, unhealthy)
	}
	return fmt.Errorf("not done after %s", after)
}

// probed asks a kubelet that was restarted whether it is well: systemd takes it for running before it has read its arguments.
func (a *Agent) probed(ctx context.Context, unit string, restarted error) (string, error) {
	if restarted != nil || unit != kubelet.Unit {
		return "", restarted
	}
	return kubelet.Await(ctx, a.host())
}
