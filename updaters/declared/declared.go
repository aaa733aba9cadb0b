// Package declared is the updater for fields of infrastructure machines of which an operator has declared that a change
// takes nothing on the node: tags and the like, which the provider itself brings to the machine.
package declared

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
)

// Name is the updater's name.
const Name = "declared"

// Field declares fields of a kind of infrastructure machine. It comes from spec.inertFields of a NodeDisruptionPolicy.
type Field struct {
	// Group is the API group, without a version.
	Group string
	// Kind is that of the machine, not of its template: AWSMachine.
	Kind string
	// Paths are dotted and below spec: additionalTags, or network.devices.mtu for that field of every item of the list. Each
	// stands for all that is below it. An empty one, or one with an empty name in it, stands for nothing.
	Paths []string
}

// Updater covers the declared fields with no action. There is nothing in it that reaches a node.
//
// A field that the provider's own webhook does not let change is left, whatever was declared of it. For kinds whose webhook is
// not known what the operator has declared counts, and that the field can be changed is theirs to know.
type Updater struct{ fields []Field }

var _ updaters.Updater = (*Updater)(nil)

// New returns an Updater for the fields. Several declarations of one kind add up.
func New(fields []Field) *Updater { return &Updater{fields: slices.Clone(fields)} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := c.Object(fieldset.InfrastructureMachine)
	if !ok || oc.Current.Group() != oc.Desired.Group() || oc.Current.Kind != oc.Desired.Kind {
		return claim, nil
	}
	paths := u.paths(oc.Desired)
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return updaters.Claim{}, err
		}
		ours, reason := judge(oc, f, paths)
		switch {
		case !ours:
		case reason != "":
			claim.Left = append(claim.Left, updaters.Left{Field: f, Reason: reason})
		default:
			claim.Covered = append(claim.Covered, updaters.Covered{Field: f, Actions: []disruption.Action{{Type: disruption.None}}})
		}
	}
	return claim, nil
}

// paths are those that are declared of the spec's kind.
func (u *Updater) paths(s fieldset.Spec) []string {
	var paths []string
	for _, f := range u.fields {
		if f.Group == s.Group() && f.Kind == s.Kind {
			paths = append(paths, f.Paths...)
		}
	}
	return paths
}

// judge reports whether a field, or a part of it, is declared, and if so why it is left. No reason: it is covered.
func judge(oc fieldset.ObjectChange, f fieldset.Field, paths []string) (ours bool, reason string) {
	var undeclared, forbidden []string
	for _, location := range locations(oc, f) {
		if below(location, paths) {
			ours = true
		} else {
			undeclared = append(undeclared, strings.Join(location, "."))
		}
		if Forbidden(oc.Desired.Group(), oc.Desired.Kind, location) {
			forbidden = append(forbidden, strings.Join(location, "."))
		}
	}
	switch {
	case !ours:
		return false, ""
	case len(forbidden) > 0:
		return true, fmt.Sprintf("it is declared to need no action, but the provider's webhook does not let %s of a running %s change: "+
			"an update in place would hang; it takes a new machine, so take it out of spec.inertFields", each(forbidden), oc.Desired.Kind)
	case len(undeclared) > 0:
		return true, fmt.Sprintf("only a part of its change is declared to need no action: spec.inertFields does not name %s of %s",
			each(undeclared), oc.Desired.Kind)
	}
	return true, ""
}

// each names every location once.
func each(locations []string) string {
	slices.Sort(locations)
	return strings.Join(slices.Compact(locations), ", ")
}

// locations are where a field differs, as the names that lead there with list items left out. A list counts as one field
// where it is not known by what its items are told apart; here it is looked into, item by item, if it has kept its length.
func locations(oc fieldset.ObjectChange, f fieldset.Field) [][]string {
	current, desired := oc.Current.Value, oc.Desired.Value
	var at []string
	for _, element := range f.Path {
		if element.FieldName == nil {
			return [][]string{names(f.Path)} // an item of a list with keys: it is not looked up by place
		}
		at = append(at, *element.FieldName)
		current, desired = member(current, *element.FieldName), member(desired, *element.FieldName)
	}
	if found := differences(at, current, desired); len(found) > 0 {
		return found
	}
	return [][]string{at} // null has come or gone
}

func names(p fieldpath.Path) []string {
	var out []string
	for _, element := range p {
		if element.FieldName != nil {
			out = append(out, *element.FieldName)
		}
	}
	return out
}

func member(v any, name string) any {
	m, _ := v.(map[string]any)
	return m[name]
}
