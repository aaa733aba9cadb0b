package handlers

import (
	"context"
	"encoding/json"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
)

// Policies are asked before an answer commits Cluster API to something.
type Policies interface {
	// Permit returns nil, or an error that says why Cluster API must ask again instead of acting on the answer: to update in
	// place, or to replace. It asks for the proposal only if that can matter.
	Permit(ctx context.Context, namespace string, replaces bool, proposal func() (inplace.Proposal, error)) error
	// Upgrade reports whether a part of a cluster may be brought to another Kubernetes version now. Done says yes.
	Upgrade(ctx context.Context, u inplace.Upgrade) (inplace.Progress, error)
}

// NoPolicies permits everything.
type NoPolicies struct{}

var _ Policies = NoPolicies{}

// Permit implements Policies.
func (NoPolicies) Permit(context.Context, string, bool, func() (inplace.Proposal, error)) error {
	return nil
}

// Upgrade implements Policies.
func (NoPolicies) Upgrade(context.Context, inplace.Upgrade) (inplace.Progress, error) {
	return inplace.Progress{Done: true}, nil
}

// propose finds out what Cluster API will do with the verdict.
func (v *verdict) propose() (inplace.Proposal, error) {
	p := inplace.Proposal{Subject: v.subject, Name: v.name, Left: v.told.left}
	if !v.template {
		p.Machine = &metav1.ObjectMeta{}
		if err := json.Unmarshal([]byte(gjson.Get(v.machine.raw, "metadata").Raw), p.Machine); err != nil {
			return p, &RequestError{Field: "current.machine.metadata", Problem: "can't be read"}
		}
	}
	for _, f := range v.decision {
		p.Material = p.Material || f.Disturbs()
	}
	p.Material = p.Material || len(p.Left) > 0
	p.Class, p.Annotations = inplace.ClassOf(v.change, v.decision), v.annotations()
	var err error
	l := machineLayout
	if v.template {
		l = machineSetLayout
	}
	p.Digest, err = digestOf(l, v.desired, v.change)
	return p, err
}

// annotations returns those that Machines are to have. What is no text is none.
func (v *verdict) annotations() map[string]string {
	path := "metadata.annotations"
	if v.template {
		path = "spec.template.metadata.annotations"
	}
	all := map[string]string{}
	gjson.Get(v.wanted.raw, path).ForEach(func(name, value gjson.Result) bool {
		all[name.Str] = value.Str
		return true
	})
	return all
}

// desiredOf returns the desired objects in the order of a layout.
func desiredOf(l layout, desired map[fieldset.Object]object) []object {
	out := make([]object, len(l))
	for i, m := range l {
		out[i] = desired[m.object]
	}
	return out
}
