package updaters

import (
	"context"
	"fmt"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
)

// noUpdater is the reason for a field that no updater's family contains.
const noUpdater = "no updater knows this field"

// Registry is an ordered set of updaters. All of them are heard before it decides; where two cover the same field, the
// one registered first brings it to the node.
type Registry struct{ updaters []Updater }

// NewRegistry returns a Registry of the updaters. Two with the same name are an error.
func NewRegistry(updaters ...Updater) (*Registry, error) {
	seen := map[string]bool{}
	for i, u := range updaters {
		if u == nil {
			return nil, fmt.Errorf("updater %d is nil: its constructor has returned none", i+1)
		}
		if seen[u.Name()] {
			return nil, fmt.Errorf("updater %q is registered twice", u.Name())
		}
		seen[u.Name()] = true
	}
	return &Registry{updaters: slices.Clone(updaters)}, nil
}

// With returns a Registry in which the updaters stand in for those of the same names. One whose name is not there yet comes last.
func (r *Registry) With(updaters ...Updater) *Registry {
	all := slices.Clone(r.updaters)
	for _, u := range updaters {
		if i := slices.IndexFunc(all, func(o Updater) bool { return o.Name() == u.Name() }); i >= 0 {
			all[i] = u
		} else {
			all = append(all, u)
		}
	}
	return &Registry{updaters: all}
}

// Verdict is what was decided about one field: it has an Updater, or a Reason why it has none.
type Verdict struct {
	Field   Field
	Updater string
	Actions []Action
	// Interrupts reports that the change restarts, starts or stops something by itself.
	Interrupts bool
	Reason     string
	// By is the updater that has said the Reason. Empty: no updater knows the field.
	By string
}

// Disturbs reports whether a change in place disturbs the node.
func (v Verdict) Disturbs() bool { return v.Interrupts || disruption.Disturbs(v.Actions) }

// Covered reports whether the field is made in place.
func (v Verdict) Covered() bool { return v.Updater != "" }

// Decision has a Verdict for each field of a change, in the change's order.
type Decision []Verdict

// InPlace reports whether every field is covered.
func (d Decision) InPlace() bool {
	return !slices.ContainsFunc(d, func(v Verdict) bool { return !v.Covered() })
}

// Worst returns the worst that the change takes on the node: Replace if it can't be made in place, and at least Restart if it restarts something
// whatever its actions are.
func (d Decision) Worst() disruption.ActionType {
	worst := disruption.None
	for _, v := range d {
		if !v.Covered() {
			return disruption.Replace
		}
		for _, a := range v.Actions {
			worst = disruption.Worst(worst, a.Type)
		}
		if v.Interrupts {
			worst = disruption.Worst(worst, disruption.Restart)
		}
	}
	return worst
}

// Covered says of each field of one object, in the order of its change, whether it is covered.
func (d Decision) Covered(o Object) []bool {
	var covered []bool
	for _, v := range d {
		if v.Field.Object == o {
			covered = append(covered, v.Covered())
		}
	}
	return covered
}

// Decide hears every updater about the change. An error means that the change could not be judged.
func (r *Registry) Decide(ctx context.Context, c Change) (Decision, error) {
	fields := c.Fields()
	decision := make(Decision, len(fields))
	for i, f := range fields {
		decision[i] = Verdict{Field: f, Reason: noUpdater}
	}
	for _, u := range r.updaters {
		claim, err := u.Claim(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("updater %s could not judge the change: %w", u.Name(), err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := decision.hear(u.Name(), claim, c); err != nil {
			return nil, err
		}
	}
	return decision, nil
}

// hear takes an updater's claim into the decision.
func (d Decision) hear(updater string, claim Claim, change Change) error {
	for _, c := range claim.Covered {
		i, ok := change.Index(c.Field)
		if !ok {
			return fmt.Errorf("updater %s claims %s of the %s, which is not a field of the change", updater, c.Field, c.Field.Object)
		}
		if !d[i].Covered() {
			d[i] = Verdict{Field: d[i].Field, Updater: updater, Actions: c.Actions, Interrupts: c.Interrupts}
		}
	}
	for _, l := range claim.Left {
		i, ok := change.Index(l.Field)
		if !ok {
			return fmt.Errorf("updater %s leaves %s of the %s, which is not a field of the change", updater, l.Field, l.Field.Object)
		}
		if !d[i].Covered() {
			d[i].Reason, d[i].By = l.Reason, updater
		}
	}
	return nil
}

// Desire returns the resources that all updaters want on the machine's node. What one of them wants of a unit counts, and not that the unit
// is enabled with its file.
func (r *Registry) Desire(d Desired) ([]Resource, error) {
	var resources []Resource
	for _, u := range r.updaters {
		nu, ok := u.(NodeUpdater)
		if !ok {
			continue
		}
		rs, err := nu.Desire(d)
		if err != nil {
			return nil, fmt.Errorf("updater %s: %w", u.Name(), err)
		}
		resources = append(resources, rs...)
	}
	wanted := map[string]bool{}
	for _, resource := range resources {
		if u := resource.Unit; u != nil && u.File == "" {
			wanted[u.Name] = true
		}
	}
	return slices.DeleteFunc(resources, func(resource Resource) bool {
		return resource.Unit != nil && resource.Unit.File != "" && wanted[resource.Unit.Name]
	}), nil
}
