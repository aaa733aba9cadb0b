package agent

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/podrestart"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// restartsFile is where it is kept which static pods a run restarts, and how far that is.
const restartsFile = "pod-restarts.json"

// mountedChanges returns the paths of a plan's files for which static pods have to be restarted. Manifests are not among them.
func mountedChanges(plan node.Plan) []string {
	var paths []string
	for _, c := range plan.Changes {
		if c.Kind == node.FileKind && path.Dir(c.Name) != staticpod.Dir && disruption.Has(c.Actions, disruption.StaticPodRefresh) {
			paths = append(paths, c.Name)
		}
	}
	return paths
}

// blockRefresh keeps a file from being changed that no static pod mounts, though one is to be restarted for it: the change would have no
// effect, and look as if it had. It also does if etcd can't do without the member that would be restarted.
func (a *Agent) blockRefresh(ctx context.Context, p *planner, file string) {
	mounted, etcd, err := podrestart.Mounted(a.root, file)
	switch {
	case err != nil:
		p.block(file, err)
	case !mounted && !p.toBeMounted(file):
		p.block(file, fmt.Errorf("no static pod of the node mounts %s, by a hostPath volume of a manifest in %s, so that no %s brings a change of it "+
			"into effect; have the pod that reads it mount it, or have a NodeDisruptionPolicy say what else a change takes",
			file, staticpod.Dir, disruption.StaticPodRefresh))
	case etcd && p.underWay == nil: // a run looks at etcd itself
		if err := a.spareEtcd(ctx); err != nil {
			p.block(file, err)
		}
	}
}

// toBeMounted reports whether a static pod mounts the file when the plan is done: the API server is told of an audit policy, and given it,
// in the same update.
func (p *planner) toBeMounted(file string) bool {
	for name, f := range p.files {
		if path.Dir(name) != staticpod.Dir {
			continue
		}
		if m, err := staticpod.Parse(f.Content); err == nil && len(m.Mounting(p.root, file)) > 0 {
			return true
		}
	}
	pods := p.others[node.Ref{Kind: node.ControlPlaneKind}].ControlPlane
	if pods == nil {
		return false
	}
	all := []node.Component{pods.APIServer, pods.ControllerManager, pods.Scheduler}
	if pods.Etcd != nil {
		all = append(all, *pods.Etcd)
	}
	return slices.ContainsFunc(all, func(c node.Component) bool {
		return slices.ContainsFunc(c.ExtraVolumes, func(v node.ExtraVolume) bool { return staticpod.Overlap(p.root, file, v.HostPath) })
	})
}

func (a *Agent) spareEtcd(ctx context.Context) error {
	pods, err := controlplane.New(a.host()).Pods()
	if err != nil || pods == nil || !pods.Etcd() {
		return err
	}
	return pods.Spare(ctx)
}

// noteRestarts notes for which files static pods have to be restarted. What an earlier run has begun and not ended is done with them.
func (a *Agent) noteRestarts(ctx context.Context, plan node.Plan) error {
	var before podrestart.Work
	if _, err := a.state.load(restartsFile, &before); err != nil {
		return err
	}
	w := podrestart.Work{Paths: mountedChanges(plan)}
	if before.Unfinished() {
		w.Paths = append(w.Paths, before.Paths...)
	}
	slices.Sort(w.Paths)
	w.Paths = slices.Compact(w.Paths)
	w.Remade = slices.ContainsFunc(plan.Changes, func(c node.Change) bool {
		return c.Kind == node.ControlPlaneKind || c.Kind == node.VersionKind
	})
	if len(w.Paths) > 0 {
		if err := podrestart.Able(ctx, a.root); err != nil {
			return err
		}
	}
	return a.state.save(restartsFile, w)
}

// restartPods restarts the static pods that mount what has changed, each of which may take as long as patience.
func (a *Agent) restartPods(ctx context.Context, note staticpod.Note, patience time.Duration) error {
	var w podrestart.Work
	ok, err := a.state.load(restartsFile, &w)
	if err != nil || !ok || len(w.Paths) == 0 {
		return err
	}
	r := podrestart.Restarter{
		Host: a.host(), Patience: patience, Save: func(w podrestart.Work) error { return a.state.save(restartsFile, w) },
	}
	return r.Restart(ctx, w, note)
}
