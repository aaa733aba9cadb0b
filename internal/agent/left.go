package agent

import (
	"context"
	"maps"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// left returns the files that failed runs have left on the node as they are, by path, and not put back: those of before this run, and if it
// has failed and was not rolled back its own. The record does not know them, so that without this what such a run has left would be taken
// for drift, or for nobody's, and stay when the specs go back to what was applied before.
func (r *runner) left(end node.Status) map[string]host.State {
	switch {
	case end.State == node.Succeeded:
		return nil
	case end.RolledBack && len(r.leftBack()) == 0:
		return r.last.Left
	case end.RolledBack:
		return nil
	}
	left := map[string]host.State{}
	if len(r.leftBack()) == 0 {
		maps.Copy(left, r.last.Left)
	}
	changes, _ := r.begun()
	for _, c := range changes {
		if c.Kind != node.FileKind {
			continue
		}
		state, err := r.root.Observe(c.Name)
		if err != nil {
			state = r.work.Expect[c.Name]
		}
		left[c.Name] = state
	}
	return left
}

// isLeft reports whether a failed run may have left a file as it is now. It is brought to what is desired, whatever the record says.
func (p *planner) isLeft(path string) bool {
	_, ok := p.work.Left[path]
	return ok
}

// conflicts reports whether somebody on the node has changed a file since it was applied, or since a failed run has left it.
func (p *planner) conflicts(path string, observed host.State, was entry, applied bool) bool {
	left, ok := p.work.Left[path]
	if ok && left == observed || !applied {
		return ok && left != observed
	}
	before, err := specState(was, p.owners)
	return err != nil || before != observed
}

// unlisted plans a file that is not in the specs: one that was applied, or that a failed run has left.
func (p *planner) unlisted(path string, was entry, applied bool) error {
	if applied {
		return p.dropped(path, was, true)
	}
	_, ok, err := p.kept.get(path)
	if err != nil {
		return err
	}
	if was.Origin = originNone; ok {
		was.Origin = originKept
	}
	return p.dropped(path, was, false)
}

// leftCopies are of what was at the paths that failed runs have left, before the first of those.
func (s stateDir) leftCopies() copies { return copies{name: "left", state: s} }

// leftBack returns the paths that earlier runs have left and that go, too, since nobody comes in: what was left can be why.
func (r *runner) leftBack() []string {
	if !r.progress.unconfirmed() {
		return nil
	}
	return slices.Sorted(maps.Keys(r.work.Left))
}

// leftChanges tells what goes so, as changes that the run has to undo.
func (r *runner) leftChanges() (changes []node.Change) {
	for _, p := range r.leftBack() {
		changes = append(changes, node.Change{Ref: node.FileRef(p), Operation: node.Restore})
	}
	return changes
}

func (r *runner) stepsLeftBack() (steps []step) {
	for _, p := range r.leftBack() {
		steps = append(steps, step{"put back " + p + ", which an earlier run has left", func(context.Context) (string, error) {
			return "", r.state.leftCopies().putBack(r.host(), p)
		}})
	}
	return steps
}

// keepLeft has the runs to come able to put back what failed runs have left.
func (r *runner) keepLeft(left map[string]host.State) error {
	kept, backups := r.state.leftCopies(), r.state.backups(r.work.Digest, r.work.Token)
	if len(left) == 0 {
		return r.disk.RemoveAll(r.state.path(kept.name))
	}
	for p := range left {
		if _, ok, err := kept.get(p); err != nil || ok {
			continue // the first is the true one
		}
		if err := kept.take(backups, p); err != nil {
			return err
		}
	}
	return nil
}
