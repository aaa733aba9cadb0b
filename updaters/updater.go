// Package updaters decides, field by field, what of a change can be made in place.
//
// An Updater judges one family of fields and declares what each takes on the node. The same declaration answers
// Cluster API's CanUpdate hooks and makes the work for UpdateMachine, so that what is claimed provably has an action.
package updaters

import (
	"context"

	"github.com/capi-refit/refit/internal/node"
)

// An Updater judges one family of fields.
type Updater interface {
	// Name is unique in a Registry and stable across releases.
	Name() string
	// Claim returns the part of c that can be made in place, and why not the rest of the family. The same Change gives
	// the same Claim. An error means that it could not be judged; it is never a "no".
	Claim(ctx context.Context, c Change) (Claim, error)
}

// A NodeUpdater brings its fields to the node as resources.
type NodeUpdater interface {
	Updater
	// Desire reads nothing but d, which also hands it the Secrets that the specs refer to.
	Desire(d Desired) ([]Resource, error)
}

// A Constructor makes an Updater for machines for which the rules hold.
type Constructor func(rules Rules) Updater

// Claim is an Updater's answer. Fields of other families are in neither list.
type Claim struct {
	Covered []Covered
	Left    []Left
}

// Add says what becomes of a field: it takes the actions, or it is left for what the error says.
func (c *Claim) Add(f Field, actions []Action, err error) {
	if err != nil {
		c.Left = append(c.Left, Left{Field: f, Reason: err.Error()})
		return
	}
	c.Covered = append(c.Covered, Covered{Field: f, Actions: actions})
}

// AddOf is Add for a field that comes to the node with the resource of.
func (c *Claim) AddOf(of node.Ref, f Field, actions []Action, err error) {
	if c.Add(f, actions, err); err == nil {
		c.Covered[len(c.Covered)-1].Interrupts = of.Interrupts()
	}
}

// Covered is a field that is brought to the node in place.
type Covered struct {
	Field Field
	// Actions are what the field's change takes on the node, in order.
	Actions []Action
	// Interrupts reports that the field's change restarts, starts or stops something by itself, beside what the actions do.
	Interrupts bool
}

// Left is a field of the Updater's family that it can't bring to the node in place.
type Left struct {
	Field Field
	// Reason is shown to people. It says why and, where there is a way, what to do. It contains no values of fields.
	Reason string
}

// Desired is what a machine should be.
type Desired struct {
	Machine               Spec
	InfrastructureMachine Spec
	BootstrapConfig       Spec
	// ControlPlane reports whether the machine is a control-plane machine, by its label.
	ControlPlane bool
	// Secret returns the value of a key of a Secret in the machine's namespace.
	Secret func(name, key string) ([]byte, error)
}
