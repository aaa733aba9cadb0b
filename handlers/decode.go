package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// RequestError says which field of a request can't be taken, and why.
type RequestError struct {
	Field   string
	Problem string
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Field == "" {
		return "the request " + e.Problem
	}
	return fmt.Sprintf("the request's field %s %s", e.Field, e.Problem)
}

// member is an object of a request.
type member struct {
	field    string
	object   fieldset.Object
	kind     string // the kind it must have; empty: any
	optional bool
	template bool // the spec is at spec.template.spec
}

// layout says where the objects of a kind of request are.
type layout []member

const (
	canUpdateMachineKind    = "CanUpdateMachineRequest"
	canUpdateMachineSetKind = "CanUpdateMachineSetRequest"
	updateMachineKind       = "UpdateMachineRequest"
)

var machineLayout = layout{
	{field: "machine", object: fieldset.Machine, kind: "Machine"},
	{field: "infrastructureMachine", object: fieldset.InfrastructureMachine},
	{field: "bootstrapConfig", object: fieldset.BootstrapConfig, optional: true},
}

var machineSetLayout = layout{
	{field: "machineSet", object: fieldset.Machine, kind: "MachineSet", template: true},
	{field: "infrastructureMachineTemplate", object: fieldset.InfrastructureMachine, template: true},
	{field: "bootstrapConfigTemplate", object: fieldset.BootstrapConfig, optional: true, template: true},
}

// rawRequest is a request whose objects are not decoded yet.
type rawRequest struct {
	APIVersion string                     `json:"apiVersion"`
	Kind       string                     `json:"kind"`
	Current    map[string]json.RawMessage `json:"current"`
	Desired    map[string]json.RawMessage `json:"desired"`
}

func decodeRequest(body []byte, kind string) (*rawRequest, error) {
	var r rawRequest
	if err := json.Unmarshal(body, &r); err != nil {
		var typeErr *json.UnmarshalTypeError
		if errors.As(err, &typeErr) {
			return nil, &RequestError{Field: typeErr.Field, Problem: fmt.Sprintf("is a JSON %s and should not be", typeErr.Value)}
		}
		return nil, &RequestError{Problem: "is not valid JSON: " + err.Error()}
	}
	if r.Kind != kind {
		return nil, &RequestError{Field: "kind", Problem: fmt.Sprintf("is %q and should be %q", r.Kind, kind)}
	}
	if want := runtimehooksv1.GroupVersion.String(); r.APIVersion != want {
		return nil, &RequestError{Field: "apiVersion", Problem: fmt.Sprintf("is %q and should be %q", r.APIVersion, want)}
	}
	return &r, nil
}

// object is an object of a request.
type object struct {
	raw             []byte // the whole object
	present         bool
	name, namespace string
	apiVersion      string
	kind            string
	spec            []byte // its JSON; empty when there is none
}

type objectEnvelope struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

type templateEnvelope struct {
	Template struct {
		Spec json.RawMessage `json:"spec"`
	} `json:"template"`
}

// decode reads the object of one side of a request ("current" or "desired").
func (m member) decode(side string, objects map[string]json.RawMessage) (object, error) {
	field := side + "." + m.field
	raw := objects[m.field]
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		if m.optional {
			return object{}, nil
		}
		return object{}, &RequestError{Field: field, Problem: "is required and missing"}
	}
	env, err := m.envelope(field, raw)
	if err != nil {
		return object{}, err
	}
	o := object{
		raw: raw, present: true, name: env.Metadata.Name, namespace: env.Metadata.Namespace,
		apiVersion: env.APIVersion, kind: env.Kind, spec: env.Spec,
	}
	if m.template && len(env.Spec) > 0 {
		var t templateEnvelope
		if err := json.Unmarshal(env.Spec, &t); err != nil {
			return object{}, &RequestError{Field: field + ".spec.template.spec", Problem: "can't be read"}
		}
		o.spec = t.Template.Spec
	}
	return o, nil
}

// envelope reads what every object has.
func (m member) envelope(field string, raw []byte) (objectEnvelope, error) {
	var env objectEnvelope
	if err := json.Unmarshal(raw, &env); err != nil {
		return env, &RequestError{Field: field, Problem: "is not a Kubernetes object"}
	}
	if env.Kind == "" || env.APIVersion == "" {
		return env, &RequestError{Field: field, Problem: "has no kind or no apiVersion"}
	}
	if m.kind != "" && env.Kind != m.kind {
		return env, &RequestError{Field: field + ".kind", Problem: fmt.Sprintf("is %q and should be %q", env.Kind, m.kind)}
	}
	return env, nil
}
