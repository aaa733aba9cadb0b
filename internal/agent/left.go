package agent

import (
	"maps"

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
	case end.RolledBack:
		return r.last.Left
	}
	left := map[string]host.State{}
	maps.Copy(left, r.last.Left)
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
