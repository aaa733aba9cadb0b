// Package image is the updater for the fields of infrastructure machines that say what a machine boots from. They matter to
// machines that are made later, so that a change of them takes nothing on those that run, if the operating system of these is
// maintained in place. That it is, an operator says with a BootImagePolicy.
package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/declared"
)

// Name is the updater's name.
const Name = "image"

// Selected is what BootImagePolicies say of a machine, or of the machines of a MachineSet.
type Selected struct {
	// Policies are the names of those that select it, in order.
	Policies []string
	// Keep are those among them that do not let its image change. One is enough.
	Keep []string
	// Kinds are the image fields that they add to those that are built in.
	Kinds []Kind
	// Err says why it is not known what they say. Nothing can then be decided about a change of an image.
	Err error
}

// Updater covers the image fields with no action. There is nothing in it that reaches a node.
//
// It covers all of a change of the infrastructure machine or nothing: a machine that is replaced for the rest of the change boots
// from the new image anyway.
type Updater struct{ selected Selected }

var _ updaters.Updater = (*Updater)(nil)

// New returns an Updater for machines of which the policies say what is selected. Without any (nil) it only says why it leaves
// the fields.
func New(selected *Selected) *Updater {
	if selected == nil {
		return &Updater{}
	}
	return &Updater{selected: *selected}
}

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater. Machines and the templates of a MachineDeployment are judged alike: what the provider
// forbids makes machines hang only in a MachineDeployment, but it is replaced in both.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := c.Object(fieldset.InfrastructureMachine)
	if !ok || oc.Current.Group() != oc.Desired.Group() || oc.Current.Kind != oc.Desired.Kind {
		return claim, nil
	}
	found, err := look(ctx, oc, Paths(oc.Desired.Group(), oc.Desired.Kind, u.selected.Kinds...))
	if err != nil {
		return claim, err
	}
	if !found.images() {
		return claim, nil
	}
	if u.selected.Err != nil {
		return claim, u.selected.Err
	}
	for _, f := range found.fields {
		if len(f.image) == 0 {
			continue
		}
		if reason := u.reason(oc, f, found); reason != "" {
			claim.Left = append(claim.Left, updaters.Left{Field: f.Field, Reason: reason})
			continue
		}
		claim.Covered = append(claim.Covered, updaters.Covered{Field: f.Field, Actions: []disruption.Action{{Type: disruption.None}}})
	}
	return claim, nil
}

// reason returns why an image field is left. Empty: it is covered.
func (u *Updater) reason(oc fieldset.ObjectChange, f field, all found) string {
	kind := oc.Desired.Kind
	switch {
	case len(f.forbidden) > 0:
		return fmt.Sprintf("the provider's webhook does not let %s of a running %s change, so that the machines of a MachineDeployment "+
			"would wait for it forever: it takes new machines; leave the image out of the template, so that it follows from the "+
			"version, and an upgrade of Kubernetes changes nothing of the %s at all", each(f.forbidden), kind, kind)
	case len(f.rest) > 0:
		return fmt.Sprintf("only a part of its change is one of the image, and %s of the %s is none of it; change the two one after the other",
			each(f.rest), kind)
	case len(u.selected.Policies) == 0:
		return "it is what machines boot from, and no BootImagePolicy selects the machine; if the operating system of running machines " +
			"is maintained in place, let one say that they stay"
	case len(u.selected.Keep) > 0:
		return fmt.Sprintf("it is what machines boot from, and by selection of BootImagePolicy %s the machine is none of those that "+
			"stay when it changes", strings.Join(u.selected.Keep, ", "))
	case len(all.others) > 0:
		return fmt.Sprintf("it is what machines boot from, and together with %s the machine is replaced; change the image alone",
			all.named)
	}
	return ""
}

// field is a field that differs, by what is at its locations.
type field struct {
	fieldset.Field
	// image are those that are at or below an image field, and rest are the others.
	image, rest []string
	// forbidden are those that the provider's webhook does not let change.
	forbidden []string
}

// found are the fields of an infrastructure machine that differ.
type found struct {
	fields []field
	// others are what can't be covered as an image, in order, and named is what people are shown of it.
	others []string
	named  string
}

func (f found) images() bool {
	return slices.ContainsFunc(f.fields, func(f field) bool { return len(f.image) > 0 })
}

// look tells the image fields of a change from the others.
func look(ctx context.Context, oc fieldset.ObjectChange, paths []string) (found, error) {
	var out found
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return found{}, err
		}
		one := field{Field: f}
		for _, location := range declared.Locations(oc, f) {
			name := strings.Join(location, ".")
			if declared.Below(location, paths) {
				one.image = append(one.image, name)
			} else {
				one.rest = append(one.rest, name)
			}
			if declared.Forbidden(oc.Desired.Group(), oc.Desired.Kind, location) {
				one.forbidden = append(one.forbidden, name)
			}
		}
		out.fields = append(out.fields, one)
		out.others = append(append(out.others, one.rest...), one.forbidden...)
	}
	out.named = each(out.others)
	return out, nil
}

// maxNamed is how many fields a reason names.
const maxNamed = 5

// each names every location once, and not more of them than people read.
func each(locations []string) string {
	names := slices.Compact(slices.Sorted(slices.Values(locations)))
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
