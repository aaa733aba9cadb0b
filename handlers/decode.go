package handlers

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"

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
		return cut("the request " + e.Problem)
	}
	return cut(fmt.Sprintf("the request's field %s %s", e.Field, e.Problem))
}

// Scope is the namespace that a server is for. Empty: all.
type Scope string

// check returns an error for another namespace. Neither a yes would be right, because the update could not be made, nor a
// no, because that would replace the machine.
func (s Scope) check(namespace string) error {
	if s == "" || namespace == string(s) {
		return nil
	}
	return fmt.Errorf("the machine is in namespace %q, and this server is for namespace %q (--namespace); narrow the namespaceSelector of its ExtensionConfig", namespace, s)
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
type rawRequest struct{ current, desired map[string]gjson.Result }

// decodeRequest finds the objects of a request. Most of them are the same on both sides and need not be decoded at all; that
// is why it looks for their bytes instead of decoding everything.
func decodeRequest(body []byte, kind string) (*rawRequest, error) {
	if !utf8.Valid(body) {
		return nil, &RequestError{Problem: "is not valid JSON: it is not UTF-8"}
	}
	if !gjson.ValidBytes(body) {
		var ignored any
		return nil, &RequestError{Problem: fmt.Sprintf("is not valid JSON: %v", json.Unmarshal(body, &ignored))}
	}
	fields, err := objectFields(gjson.ParseBytes(body), "")
	if err != nil {
		return nil, err
	}
	for _, f := range [][2]string{{"kind", kind}, {"apiVersion", runtimehooksv1.GroupVersion.String()}} {
		if got := fields[f[0]]; got.Type != gjson.String || got.Str != f[1] {
			return nil, &RequestError{Field: f[0], Problem: fmt.Sprintf("is %q and should be %q", got.String(), f[1])}
		}
	}
	r := &rawRequest{}
	if r.current, err = objectFields(fields["current"], "current"); err != nil {
		return nil, err
	}
	r.desired, err = objectFields(fields["desired"], "desired")
	return r, err
}

// name returns the namespace and name of the Machine or MachineSet of a request that may not be one that can be judged.
func (r *rawRequest) name(l layout) string {
	metadata := r.current[l.of(fieldset.Machine).field].Get("metadata")
	return cut(metadata.Get("namespace").String() + "/" + metadata.Get("name").String())
}

// objectFields returns the fields of a JSON object. What is missing or null has none. Of a name that is there twice the last
// counts, as it does for Cluster API.
func objectFields(v gjson.Result, name string) (map[string]gjson.Result, error) {
	if v.Type == gjson.Null {
		return nil, nil
	}
	if !v.IsObject() {
		return nil, &RequestError{Field: name, Problem: "is not a JSON object"}
	}
	fields := make(map[string]gjson.Result, 4)
	v.ForEach(func(key, value gjson.Result) bool {
		fields[key.Str] = value
		return true
	})
	return fields, nil
}

// object is an object of a request.
type object struct {
	raw             string // the whole object; empty when it is not there
	name, namespace string
	apiVersion      string
	kind            string
	spec            string // its JSON; empty when there is none
}

// decode reads the object of one side of a request ("current" or "desired").
func (m member) decode(side string, objects map[string]gjson.Result) (object, error) {
	field := side + "." + m.field
	fields, err := objectFields(objects[m.field], field)
	if err != nil {
		return object{}, err
	}
	if fields == nil {
		if m.optional {
			return object{}, nil
		}
		return object{}, &RequestError{Field: field, Problem: "is required and missing"}
	}
	o := object{raw: objects[m.field].Raw, apiVersion: fields["apiVersion"].Str, kind: fields["kind"].Str, spec: fields["spec"].Raw}
	if o.kind == "" || o.apiVersion == "" {
		return object{}, &RequestError{Field: field, Problem: "has no kind or no apiVersion"}
	}
	if m.kind != "" && o.kind != m.kind {
		return object{}, &RequestError{Field: field + ".kind", Problem: fmt.Sprintf("is %q and should be %q", o.kind, m.kind)}
	}
	if metadata := fields["metadata"]; metadata.IsObject() {
		o.name, o.namespace = metadata.Get("name").Str, metadata.Get("namespace").Str
	}
	if tooLong(o.name, o.namespace, o.kind, o.apiVersion) {
		return object{}, &RequestError{Field: field, Problem: fmt.Sprintf("has a name, namespace, kind or apiVersion of more than %d bytes", maxObjectName)}
	}
	if m.template {
		o.spec, err = templateSpec(fields["spec"], field)
	}
	return o, err
}

// maxObjectName is the longest name that an API server takes, in bytes (RFC 1123 subdomain). The names are in messages and in the log.
const maxObjectName = 253

func tooLong(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return len(n) > maxObjectName })
}

// templateSpec returns the JSON at template.spec of a spec.
func templateSpec(spec gjson.Result, field string) (string, error) {
	fields, err := objectFields(spec, field+".spec")
	if err != nil {
		return "", err
	}
	template, err := objectFields(fields["template"], field+".spec.template")
	return template["spec"].Raw, err
}
