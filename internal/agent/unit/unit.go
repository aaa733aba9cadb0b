// Package unit brings the state of systemd's units to the node: enabled or not, running or not, masked or not.
package unit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Kind is the kind of resource.
type Kind struct{ host host.Host }

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h} }

// Plan implements kind.Kind. A unit that the specs no longer list stays as it is, unless it goes with its file: what it was before is for
// its package to say.
func (k *Kind) Plan(ctx context.Context, q kind.Question) (kind.Answer, error) {
	if of := cmp.Or(q.Desired, q.Was); of.Unit.File != "" {
		return k.planOfFile(ctx, q)
	}
	if q.Desired == nil {
		return kind.Answer{}, nil
	}
	want := *q.Desired.Unit
	if k.host.Units == nil {
		return kind.Answer{Blocked: fmt.Sprintf("the node has no systemctl, so unit %s can't be changed", want.Name)}, nil
	}
	state, err := k.host.Units.Show(ctx, want.Name)
	if err != nil {
		return kind.Answer{}, err
	}
	differs := differences(want, state)
	if len(differs) == 0 {
		return kind.Answer{}, nil
	}
	if !q.Changed(func(was, desired *node.Resource) bool { return reflect.DeepEqual(was.Unit, desired.Unit) }) {
		return kind.Answer{Drift: differs}, nil
	}
	if state.Missing() && stops(want) {
		return kind.Answer{Notes: []string{fmt.Sprintf("unit %s is not installed, so there is nothing to stop", want.Name)}}, nil
	}
	before, err := json.Marshal(state)
	return kind.Answer{
		Operation: node.Write,
		Conflict:  q.Was != nil && len(differences(*q.Was.Unit, state)) > 0,
		Switches:  want.Active != nil && *want.Active != state.Running(),
		Actions:   []disruption.Action{{Type: disruption.None}},
		Before:    before,
	}, err
}

// stops reports whether nothing is wanted of a unit but that it does not run.
func stops(want node.Unit) bool {
	off := func(b *bool) bool { return b == nil || !*b }
	return off(want.Enabled) && off(want.Active)
}

// differences says in which respects a unit is not as it is wanted.
func differences(want node.Unit, is host.UnitState) []string {
	if is.Missing() {
		if stops(want) {
			return nil
		}
		return []string{"missing"}
	}
	var what []string
	differ := func(name string, want *bool, is bool) {
		if want != nil && *want != is {
			what = append(what, name)
		}
	}
	differ("masked", want.Masked, is.Masked())
	differ("enabled", want.Enabled, is.Enabled())
	differ(kind.Active, want.Active, is.Running())
	return what
}

// Make implements kind.Kind.
func (k *Kind) Make(ctx context.Context, c kind.Change) (string, error) {
	if c.Desired == nil {
		return "", k.bring(ctx, node.Unit{Name: c.Was.Unit.Name, Enabled: new(false)})
	}
	return "", k.bring(ctx, *c.Desired.Unit)
}

// Undo implements kind.Kind.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	var before host.UnitState
	if err := json.Unmarshal(c.Before, &before); err != nil {
		return errors.New("what the unit was before can't be read")
	}
	made := node.Unit{Enabled: new(false)}
	if c.Desired != nil {
		made = *c.Desired.Unit
	}
	want := node.Unit{Name: cmp.Or(c.Desired, c.Was).Unit.Name}
	if made.Masked != nil {
		want.Masked = new(before.Masked())
	}
	if made.Enabled != nil && !before.Masked() {
		want.Enabled = new(before.Enabled())
	}
	if made.Active != nil {
		want.Active = new(before.Running())
	}
	return k.bring(ctx, want)
}

// bring unmasks before it starts, and stops before it masks.
func (k *Kind) bring(ctx context.Context, want node.Unit) error {
	do := func(on *bool, yes, no string) error {
		switch {
		case on == nil:
			return nil
		case *on:
			return k.do(ctx, yes, want.Name)
		default:
			return k.do(ctx, no, want.Name)
		}
	}
	masks := want.Masked != nil && *want.Masked
	if !masks {
		if err := do(want.Masked, "", "unmask"); err != nil {
			return err
		}
	}
	if err := do(want.Enabled, "enable", "disable"); err != nil {
		return err
	}
	if err := do(want.Active, "start", "stop"); err != nil {
		return err
	}
	if masks {
		return k.do(ctx, "mask", want.Name)
	}
	return nil
}

func (k *Kind) do(ctx context.Context, verb, unit string) error {
	if err := k.host.Units.Do(ctx, verb, unit); err != nil {
		return fmt.Errorf("systemctl %s %s: %w (see journalctl -u %s on the node)", verb, unit, err, unit)
	}
	return nil
}
