package unit

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// elsewhere is where systemd finds units beside /etc/systemd/system.
var elsewhere = []string{
	"/run/systemd/system", "/run/systemd/generator", "/run/systemd/generator.early", "/run/systemd/generator.late", "/run/systemd/transient",
	"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// planOfFile plans a unit that comes with a file of the specs. What is recorded of it says who has enabled it: refit, if Enabled is set, or
// else somebody on the node, who may have had a reason not to.
func (k *Kind) planOfFile(ctx context.Context, q kind.Question) (kind.Answer, error) {
	switch {
	case q.Desired == nil:
		return k.dropped(ctx, q)
	case q.Was == nil || q.Was.Unit.File == "":
		return k.added(ctx, q)
	}
	left := kind.Answer{Applied: q.Was}
	if q.Was.Unit.Enabled == nil {
		return left, nil
	}
	state, err := k.show(ctx, q.Was.Unit.Name)
	if err != nil {
		return kind.Answer{}, err
	}
	differs := differences(*q.Was.Unit, state)
	switch {
	case len(differs) == 0:
		return left, nil
	case !q.Repair || state.Masked():
		left.Drift = differs
		return left, nil
	}
	return change(node.Write, true, state)
}

// added plans a unit of which nothing is known. It is enabled if its file is new and the node does not have the unit from elsewhere.
func (k *Kind) added(ctx context.Context, q kind.Question) (kind.Answer, error) {
	want := q.Desired.Unit
	left := kind.Answer{Applied: &node.Resource{Unit: &node.Unit{Name: want.Name, File: want.File}}}
	if !q.New || k.hasElsewhere(want.Name) {
		return left, nil
	}
	state, err := k.show(ctx, want.Name)
	switch {
	case err != nil:
		return kind.Answer{}, err
	case state.Masked():
		return left, nil
	case state.Enabled(): // by the run that has left the file
		return kind.Answer{}, nil
	}
	return change(node.Write, false, state)
}

// dropped plans a unit that the specs no longer enable: its file goes, or has no section [Install] any more. A verification has no files: there
// the change was made.
func (k *Kind) dropped(ctx context.Context, q kind.Question) (kind.Answer, error) {
	was := q.Was.Unit
	content, changed := q.Files[was.File]
	if q.Files != nil && !changed || was.Enabled == nil && (content != nil || k.hasElsewhere(was.Name)) {
		return kind.Answer{}, nil
	}
	state, err := k.show(ctx, was.Name)
	if err != nil || !state.Enabled() {
		return kind.Answer{}, err
	}
	return change(node.Remove, false, state)
}

// hasElsewhere reports whether the node has a unit without its file in /etc/systemd/system.
func (k *Kind) hasElsewhere(name string) bool {
	for _, dir := range elsewhere {
		if state, err := k.host.Observe(path.Join(dir, name)); err != nil || state.Exists {
			return true
		}
	}
	return false
}

func (k *Kind) show(ctx context.Context, name string) (host.UnitState, error) {
	if k.host.Units == nil {
		return host.UnitState{}, fmt.Errorf("the node has no systemctl, so unit %s can't be looked at", name)
	}
	return k.host.Units.Show(ctx, name)
}

func change(op node.Operation, conflict bool, before host.UnitState) (kind.Answer, error) {
	raw, err := json.Marshal(before)
	return kind.Answer{Operation: op, Conflict: conflict, Actions: []disruption.Action{{Type: disruption.None}}, Before: raw}, err
}
