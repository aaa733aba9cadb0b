// Package kind says what a kind of resource, other than a file, promises to the agent: units, users, the kubelet's
// arguments and the like. Each kind is a package of its own below internal/agent.
package kind

import (
	"context"
	"encoding/json"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// A Kind brings one kind of resource to the node.
type Kind interface {
	// Plan compares a resource three ways: what is desired, what was applied last, and what the node shows. It changes nothing.
	// What the specs did not change is never touched: what then differs on the node is drift. An error means that the node
	// could not be read.
	Plan(ctx context.Context, q Question) (Answer, error)
	// Make has the node show what is desired, whatever it shows now: it can be repeated, also after half of it was done. The
	// note, if there is one, is for people, and so is the error: neither contains values of secrets.
	Make(ctx context.Context, c Change) (note string, err error)
	// Undo has the node show again what it showed when the change was planned. It can be repeated too. A Remark says that the node does.
	Undo(ctx context.Context, c Change) error
}

// Remark is what Undo returns, and nothing beside it, when the node shows again what it did, and people have to know something all the same.
type Remark struct{ Err error }

// Error implements error.
func (r *Remark) Error() string { return r.Err.Error() }

// Unwrap returns what people have to know.
func (r *Remark) Unwrap() error { return r.Err }

// Active is what Answer.Drift names that runs and should not, or the other way round. It alone says nothing of what is on the disk.
const Active = "active"

// Question is about one resource.
type Question struct {
	// Was is what was applied last, or laid down by bootstrap. Nil: nothing was, or it is not known.
	Was *node.Resource
	// Known reports whether Was can be relied on: if it is nil, that nothing was applied. Without it what the node shows already
	// is taken for applied, and what differs for changed.
	Known bool
	// Desired is nil when the specs no longer list the resource.
	Desired *node.Resource
	Rules   disruption.Rules
	Login   node.Login
	// Source is where another version of Kubernetes comes from, or nil.
	Source *node.Source
	// Kubernetes is the version that the node is to run when all that is desired is made; empty: the specs don't say.
	Kubernetes string
	// Repair reports that what the node shows otherwise than what was applied is to be brought back, as if the specs had changed it.
	Repair bool
	// UnderWay reports that a run is under way on the node. What it needs it looks for itself, and what it has taken is not to stop it.
	UnderWay bool
	// Files are those that the same plan changes before the resource, by path: what will be in them, or nil if they will be gone.
	Files map[string][]byte
	// New reports of a unit that comes with a file that nothing was at its path before the plan, or before a failed run that has left it.
	New bool
}

// Changed reports whether the specs have changed the resource since it was applied, as far as that is known, or whether it is to be
// repaired.
func (q Question) Changed(same func(was, desired *node.Resource) bool) bool {
	switch {
	case q.Was == nil:
		return q.Desired != nil
	case q.Desired == nil:
		return true
	default:
		return q.Repair || !same(q.Was, q.Desired)
	}
}

// Answer is what has to be done about one resource.
type Answer struct {
	// Operation is empty when nothing has to be done.
	Operation node.Operation
	// Conflict reports that somebody on the node has changed the resource too.
	Conflict bool
	// Switches reports that the change starts or stops a unit, beside what the actions do.
	Switches bool
	// Actions are what the change takes.
	Actions []disruption.Action
	// Applied is what is recorded as applied, where that is not all that is desired.
	Applied *node.Resource
	// Drift says what the node shows otherwise than what is desired, where the specs did not change it. It contains no values.
	Drift []string
	// Stage lists what has to be brought to the node first.
	Stage []string
	// Blocked says why the change can't be made, and what to do. Empty: it can.
	Blocked string
	// Notes are remarks for people.
	Notes []string
	// Before is what Undo needs. It stays on the node, where only root can read it, until the run has ended.
	Before json.RawMessage
}

// Change is one to be made or undone.
type Change struct {
	Was     *node.Resource  `json:"was,omitempty"`
	Desired *node.Resource  `json:"desired,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"`
	// Again reports that it was begun before, by a process that did not come to its end: the node may have lost power meanwhile.
	Again bool `json:"-"`
}
