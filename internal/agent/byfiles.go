package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/effect"
	"github.com/capi-refit/refit/internal/agent/network"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// rebuildPatience is how long it may take at least to make an initramfs, or the boot loader's configuration, for all kernels of a node.
const rebuildPatience = 10 * time.Minute

// byFiles are the actions of which the files that a run has changed say which program does them.
var byFiles = []disruption.ActionType{disruption.NetworkReload, disruption.RebuildInitramfs, disruption.RebuildBootloader}

// filesOf returns the files of a run that take an action. There are none where it is owed from an earlier run.
func filesOf(w *work, t disruption.ActionType) []string {
	var files []string
	for _, c := range w.Plan.Changes {
		if c.Kind == node.FileKind && disruption.Has(c.Actions, t) {
			files = append(files, c.Name)
		}
	}
	return files
}

func (a *Agent) networkFiles(w *work) ([]network.File, error) {
	var files []network.File
	for _, c := range w.Plan.Changes {
		if c.Kind != node.FileKind || !disruption.Has(c.Actions, disruption.NetworkReload) {
			continue
		}
		before, after, err := a.versions(w, c)
		if err != nil {
			return nil, err
		}
		files = append(files, network.File{Path: c.Name, Before: before, After: after})
	}
	return files, nil
}

// ableByFiles returns an error if the node lacks a program that an action takes.
func (a *Agent) ableByFiles(w *work, t disruption.ActionType) error {
	files := filesOf(w, t)
	switch t {
	case disruption.NetworkReload:
		return network.Network{Host: a.host()}.Check(files)
	case disruption.RebuildInitramfs:
		return effect.Boot{Root: a.root}.CheckInitramfs(files)
	case disruption.RebuildBootloader:
		return effect.Boot{Root: a.root}.CheckLoader(files)
	case disruption.TrustStoreUpdate:
		_, err := a.findTrustStores(files)
		return err
	default:
		return nil
	}
}

// blockByFiles keeps a plan from being applied whose files nothing on the node reads: it would be drained for nothing.
func (a *Agent) blockByFiles(p *planner) {
	for _, action := range p.work.Plan.Actions {
		if err := a.ableByFiles(&p.work, action.Type); err != nil {
			p.block(strings.Join(filesOf(&p.work, action.Type), ", "), err)
		}
	}
}

// actByFiles does an action of byFiles. Whether the files are those of the run, or put back, is the same to it.
func (a *Agent) actByFiles(ctx context.Context, t disruption.ActionType) (string, error) {
	w, err := a.state.loadWork()
	if err != nil {
		return "", err
	}
	boot := effect.Boot{Root: a.root}
	switch t {
	case disruption.RebuildInitramfs:
		return boot.RebuildInitramfs(ctx, filesOf(w, t))
	case disruption.RebuildBootloader:
		return "", boot.RebuildLoader(ctx, filesOf(w, t))
	default:
	}
	files, err := a.networkFiles(w)
	if err != nil {
		return "", err
	}
	notes, err := network.Network{Host: a.host()}.Reload(ctx, files)
	return strings.Join(notes, "; "), err
}

// actionTime returns how long an action may take for which nobody has said it.
func (a *Agent) actionTime(t disruption.ActionType) time.Duration {
	if t == disruption.RebuildInitramfs || t == disruption.RebuildBootloader {
		return max(rebuildPatience, a.cfg.ActionTimeout)
	}
	return a.cfg.ActionTimeout
}

func isByFiles(t disruption.ActionType) bool { return slices.Contains(byFiles, t) }
