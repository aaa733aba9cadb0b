// Package nodeobject decides what of the labels and taints of a Node is changed when a Machine's specs have changed, and what is left as
// others have made it.
package nodeobject

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

// appliedAnnotation on a Node says which labels and taints the specs had when refit last brought them there, as JSON. It is
// written by the same write as they are. Without it, what bootstrap registered the Node with stands in for it. Whoever has the Node's
// credentials can write it as well, and could have labels and taints taken away that NodeRestriction keeps from a kubelet, so that what
// refit did not write is not believed.
const appliedAnnotation = "capi-refit.dev/applied-labels-and-taints"

// Kind is the kind of a change of the Node itself.
const Kind node.Kind = "Node"

// Object is what the labels and taints of a Node are to be.
type Object struct {
	Want kubeadm.Registration
	// Was is what the Node was registered with. Nil: not known.
	Was *kubeadm.Registration
	// Records are digests of what refit may have recorded on the Node: the only records that are believed.
	Records []string
	// Taint returns what a change of a taint takes, or why it can't be made in place.
	Taint func() ([]disruption.Action, error)
	// Refuse means that what somebody else has changed as well as the specs is not overwritten.
	Refuse bool
}

// applied is what an appliedAnnotation says.
type applied struct {
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
}

// read returns what is recorded on a Node, and its digest. What refit did not write is no record; said means that there is something.
func (o *Object) read(n *corev1.Node) (a *applied, digest string, said bool) {
	text, said := n.Annotations[appliedAnnotation]
	if !said {
		return nil, "", false
	}
	digest = digestOf(text)
	if !slices.Contains(o.Records, digest) || json.Unmarshal([]byte(text), &a) != nil {
		return nil, "", true
	}
	return a, digest, true
}

// base is what labels and taints are compared with. What is not known is nil.
func (o *Object) base(recorded *applied) applied {
	var base applied
	switch {
	case recorded != nil:
		if base.Labels = recorded.Labels; base.Labels == nil {
			base.Labels = map[string]string{}
		}
		base.Taints = append([]corev1.Taint{}, recorded.Taints...)
	case o.Was != nil:
		if !o.Was.LabelsUnknown {
			base.Labels = o.Was.Labels
		}
		if !o.Was.TaintsUnknown {
			base.Taints = append([]corev1.Taint{}, o.Was.Taints...)
		}
	}
	return base
}

// Edit changes a Node so that it shows what is desired, and returns what that was. Where the specs have not changed a label or a
// taint it is left, whatever the Node shows; one that they no longer have goes if it still is as they had it.
func (o *Object) Edit(n *corev1.Node) *Edit {
	recorded, digest, said := o.read(n)
	base := o.base(recorded)
	e, next := &Edit{node: n}, base
	if said && recorded == nil {
		e.Notes = append(e.Notes, fmt.Sprintf("the annotation %s of Node %s is not as refit has written it, and not believed: "+
			"labels and taints that refit has put there and the specs no longer have may stay", appliedAnnotation, n.Name))
	}
	if !o.Want.LabelsUnknown {
		e.labels(base.Labels, o.Want.Labels)
		next.Labels = o.Want.Labels
	}
	if !o.Want.TaintsUnknown {
		e.taints(base.Taints, o.Want.Taints)
		next.Taints = o.Want.Taints
	}
	if len(e.Done) > 0 && (base.Labels == nil || base.Taints == nil) {
		e.Notes = append(e.Notes, "what the Node was registered with is not known, so labels and taints that the specs no longer have may stay")
	}
	if !said && same(next, base) {
		return e // nothing has changed since the Node was registered
	}
	e.record(next, digest)
	return e
}

// record has the Node say what the specs have. before is the digest of the record that it has, if it has one.
func (e *Edit) record(next applied, before string) {
	text, _ := json.Marshal(next)
	digest := digestOf(string(text))
	if digest == before {
		return
	}
	// The one before is on the Node until this one is.
	if e.Records = []string{digest}; before != "" {
		e.Records = append(e.Records, before)
	}
	if e.node.Annotations == nil {
		e.node.Annotations = map[string]string{}
	}
	e.node.Annotations[appliedAnnotation] = string(text)
}

func digestOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// same compares two records. That nothing is known and that there is nothing is the same.
func same(a, b applied) bool {
	return maps.Equal(a.Labels, b.Labels) && (len(a.Taints)+len(b.Taints) == 0 || reflect.DeepEqual(a.Taints, b.Taints))
}

// Actions returns what an edit takes.
func (o *Object) Actions(e *Edit) ([]disruption.Action, error) {
	lists := [][]disruption.Action{{{Type: disruption.None}}}
	if e.taintsChanged {
		actions, err := o.Taint()
		if err != nil {
			return nil, err
		}
		lists = append(lists, actions)
	}
	if e.evicts {
		lists = append(lists, []disruption.Action{{Type: disruption.Drain}})
	}
	return disruption.Merge(lists...), nil
}

// Plan puts what the Node takes into the plan of what is done on it.
func (o *Object) Plan(n *corev1.Node, plan *node.Plan) {
	ref := node.Ref{Kind: Kind, Name: n.Name}
	block := func(err error) { plan.Blocked = append(plan.Blocked, node.ProblemOf(ref.String(), err)) }
	e := o.Edit(n.DeepCopy())
	plan.Notes = append(plan.Notes, e.Notes...)
	if len(e.Done) == 0 {
		return
	}
	actions, err := o.Actions(e)
	switch {
	case err != nil:
		block(err)
		return
	case e.Conflict && o.Refuse:
		block(errors.New("it was changed by others as well as in the specs, and conflicts are refused: " + strings.Join(e.Done, ", ")))
		return
	}
	plan.Changes = append(plan.Changes, node.Change{Ref: ref, Operation: node.Write, Conflict: e.Conflict, Actions: actions})
	plan.Actions = disruption.Merge(plan.Actions, actions)
}
