// Package nodeobject decides what of the labels and taints of a Node is changed when a Machine's specs have changed, and what is left as
// others have made it.
package nodeobject

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

// appliedAnnotation on a Node says which labels and taints the specs had when refit last brought them there, as JSON. It is
// written by the same write as they are. Without it, what bootstrap registered the Node with stands in for it.
const appliedAnnotation = "capi-refit.dev/applied-labels-and-taints"

// Kind is the kind of a change of the Node itself.
const Kind node.Kind = "Node"

// Object is what the labels and taints of a Node are to be.
type Object struct {
	Want kubeadm.Registration
	// Was is what the Node was registered with. Nil: not known.
	Was *kubeadm.Registration
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

// base is what labels and taints are compared with. What is not known is nil.
func (o *Object) base(n *corev1.Node) (labels map[string]string, taints []corev1.Taint, recorded bool, err error) {
	if text, ok := n.Annotations[appliedAnnotation]; ok {
		a := applied{}
		if json.Unmarshal([]byte(text), &a) != nil {
			return nil, nil, false, fmt.Errorf("its annotation %[1]s is not as refit writes it, so what refit has put there can't be told; "+
				"remove it: kubectl annotate node %[2]s %[1]s-", appliedAnnotation, n.Name)
		}
		if labels = a.Labels; labels == nil {
			labels = map[string]string{}
		}
		return labels, append([]corev1.Taint{}, a.Taints...), true, nil
	}
	if o.Was == nil {
		return nil, nil, false, nil
	}
	if !o.Was.LabelsUnknown {
		labels = o.Was.Labels
	}
	if !o.Was.TaintsUnknown {
		taints = append([]corev1.Taint{}, o.Was.Taints...)
	}
	return labels, taints, false, nil
}

// Edit changes a Node so that it shows what is desired, and returns what that was. Where the specs have not changed a label or a
// taint it is left, whatever the Node shows; one that they no longer have goes if it still is as they had it.
func (o *Object) Edit(n *corev1.Node) (*Edit, error) {
	labels, taints, recorded, err := o.base(n)
	if err != nil {
		return nil, err
	}
	e := &Edit{node: n}
	next := applied{Labels: labels, Taints: taints}
	if !o.Want.LabelsUnknown {
		e.labels(labels, o.Want.Labels)
		next.Labels = o.Want.Labels
	}
	if !o.Want.TaintsUnknown {
		e.taints(taints, o.Want.Taints)
		next.Taints = o.Want.Taints
	}
	if len(e.Done) > 0 && (labels == nil || taints == nil) {
		e.Notes = append(e.Notes, "what the Node was registered with is not known, so labels and taints that the specs no longer have may stay")
	}
	if !recorded && same(next, applied{labels, taints}) {
		return e, nil // nothing has changed since the Node was registered
	}
	if text, _ := json.Marshal(next); string(text) != n.Annotations[appliedAnnotation] {
		e.Recorded = true
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[appliedAnnotation] = string(text)
	}
	return e, nil
}

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
	e, err := o.Edit(n.DeepCopy())
	if err != nil {
		block(err)
		return
	}
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
