package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// The hooks.
const (
	canUpdateMachine    = "CanUpdateMachine"
	canUpdateMachineSet = "CanUpdateMachineSet"
	updateMachine       = "UpdateMachine"
)

// member is an object of a request.
type member struct {
	field    string
	object   fieldset.Object
	template bool // what may change is at spec.template.spec
}

// members are the objects of each hook's requests.
var members = map[string][]member{
	canUpdateMachine: {
		{"machine", fieldset.Machine, false}, {"infrastructureMachine", fieldset.InfrastructureMachine, false}, {"bootstrapConfig", fieldset.BootstrapConfig, false},
	},
	canUpdateMachineSet: {
		{"machineSet", fieldset.Machine, true}, {"infrastructureMachineTemplate", fieldset.InfrastructureMachine, true},
		{"bootstrapConfigTemplate", fieldset.BootstrapConfig, true},
	},
}

// root are the names on the way to what may change.
func (m member) root() []string {
	if m.template {
		return []string{"spec", "template", "spec"}
	}
	return []string{"spec"}
}

// memberOf returns the member of a hook's requests that an object is.
func memberOf(hook string, o fieldset.Object) member {
	i := slices.IndexFunc(members[hook], func(m member) bool { return m.object == o })
	return members[hook][i] // each hook has all of them
}

// Request is a request that is sent.
type Request struct {
	name string
	hook string
	body []byte
}

// ReadRequest reads a request of one of the three hooks, in JSON or YAML.
func ReadRequest(name string, data []byte) (Request, error) {
	body, err := yaml.YAMLToJSON(data)
	if err != nil {
		return Request{}, fmt.Errorf("%s: %w", name, err)
	}
	var head struct {
		APIVersion string                     `json:"apiVersion"`
		Kind       string                     `json:"kind"`
		Current    map[string]json.RawMessage `json:"current"`
		Desired    map[string]json.RawMessage `json:"desired"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return Request{}, fmt.Errorf("%s is not a request: %w", name, err)
	}
	hook, found := strings.CutSuffix(head.Kind, "Request")
	if !found || hook != updateMachine && members[hook] == nil || head.APIVersion != runtimehooksv1.GroupVersion.String() {
		return Request{}, fmt.Errorf("%s is a %q of %q, and has to be a CanUpdateMachineRequest, CanUpdateMachineSetRequest or UpdateMachineRequest of %s",
			name, head.Kind, head.APIVersion, runtimehooksv1.GroupVersion)
	}
	if len(head.Desired) == 0 || hook != updateMachine && len(head.Current) == 0 {
		return Request{}, fmt.Errorf("%s lacks the objects: a %s has them in desired, and if it is no UpdateMachineRequest in current as well", name, head.Kind)
	}
	return Request{name: name, hook: hook, body: body}, nil
}

// ForUpdateMachine reports whether sending the request would have a machine updated.
func (r Request) ForUpdateMachine() bool { return r.hook == updateMachine }

//go:embed requests/*.json
var recordedFiles embed.FS

// Recorded returns requests that Cluster API's managers have sent.
func Recorded() ([]Request, error) {
	names, err := fs.Glob(recordedFiles, "requests/*.json")
	if err != nil {
		return nil, err
	}
	var all []Request
	var errs []error
	for _, name := range names {
		data, err := recordedFiles.ReadFile(name)
		errs = append(errs, err)
		r, err := ReadRequest(strings.TrimSuffix(path.Base(name), ".json"), data)
		errs = append(errs, err)
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}

// sides are the objects of a request, by their fields, and the rest of it.
type sides struct{ request, current, desired map[string]any }

// edit returns the request with something changed.
func (r Request) edit(what string, change func(s sides)) (Request, error) {
	var s sides
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.UseNumber() // large ones would be others
	if err := d.Decode(&s.request); err != nil {
		return r, err
	}
	s.current, _ = s.request["current"].(map[string]any)
	s.desired, _ = s.request["desired"].(map[string]any)
	change(s)
	body, err := json.Marshal(s.request)
	return r.like(what, body), err
}

// like returns another body for the same handler.
func (r Request) like(what string, body []byte) Request {
	return Request{name: r.name + ", " + what, hook: r.hook, body: body}
}

// equal returns the request with desired as current is.
func (r Request) equal() (Request, error) {
	return r.edit("with desired as current", func(s sides) { s.request["desired"] = s.request["current"] })
}

// descend returns the mapping at a path, which is made where it is missing.
func descend(in map[string]any, names ...string) map[string]any {
	for _, name := range names {
		next, ok := in[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[name] = next
		}
		in = next
	}
	return in
}

// specOf returns what may change of an object of one side.
func specOf(side map[string]any, m member) map[string]any {
	return descend(side, append([]string{m.field}, m.root()...)...)
}

// objects returns the objects of one side as they are sent.
func (r Request) objects(side string) (map[string]json.RawMessage, error) {
	var request map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &request); err != nil {
		return nil, err
	}
	var objects map[string]json.RawMessage
	return objects, json.Unmarshal(request[side], &objects)
}
