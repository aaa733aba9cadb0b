package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/schedule"
)

// policyDocuments are the policies of a file, and the ConfigMaps with their calendars.
type policyDocuments struct {
	now      time.Time
	policies []policyDocument
	maps     map[string]map[string]string
}

// policyDocument is the spec of a policy.
type policyDocument struct {
	name string
	spec []byte
}

// readPolicies reads documents: each is a policy, a policy's spec, a ConfigMap, or a list of them.
func readPolicies(data []byte, now time.Time) (*policyDocuments, error) {
	docs := &policyDocuments{now: now}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		j, err := sigsyaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, err
		}
		if err := docs.addJSON(j); err != nil {
			return nil, err
		}
	}
	if len(docs.policies) == 0 {
		return nil, errors.New("there is no ChangeManagementPolicy")
	}
	return docs, nil
}

func (d *policyDocuments) addJSON(doc []byte) error {
	doc = bytes.TrimSpace(doc)
	if len(doc) == 0 || string(doc) == "null" {
		return nil
	}
	if doc[0] == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(doc, &list); err != nil {
			return err
		}
		return d.addAll(list)
	}
	var object scheduleObject
	if err := json.Unmarshal(doc, &object); err != nil {
		return err
	}
	return d.addObject(object, doc)
}

// scheduleObject is an object of a file, of whatever kind.
type scheduleObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
	Spec  json.RawMessage   `json:"spec"`
	Data  map[string]string `json:"data"`
}

// addObject adds an object, which doc holds as it was written.
func (d *policyDocuments) addObject(object scheduleObject, doc []byte) error {
	switch object.Kind {
	case "ConfigMap":
		if d.maps == nil {
			d.maps = map[string]map[string]string{}
		}
		d.maps[object.Metadata.Name] = object.Data
	case "List", "ChangeManagementPolicyList":
		return d.addAll(object.Items)
	case "ChangeManagementPolicy":
		spec := object.Spec
		if spec == nil {
			spec = []byte("{}")
		}
		d.policies = append(d.policies, policyDocument{object.Metadata.Name, spec})
	case "":
		if object.Spec != nil {
			doc = object.Spec
		}
		d.policies = append(d.policies, policyDocument{fmt.Sprintf("%d", len(d.policies)+1), doc})
	default:
		return fmt.Errorf("%s is neither a ChangeManagementPolicy nor a ConfigMap", object.Kind)
	}
	return nil
}

func (d *policyDocuments) addAll(list []json.RawMessage) error {
	for _, doc := range list {
		if err := d.addJSON(doc); err != nil {
			return err
		}
	}
	return nil
}

// compile returns the schedules. One that can't be read is closed, and says why when it is asked.
func (d *policyDocuments) compile() []*schedule.Schedule {
	var all []*schedule.Schedule
	for _, p := range d.policies {
		policy, err := schedule.DecodePolicy(p.spec)
		if err != nil {
			all = append(all, schedule.Invalid(p.name, err))
			continue
		}
		s, _ := schedule.Compile(p.name, policy, d) // Decide says what is wrong
		all = append(all, s)
	}
	return all
}

var _ schedule.Calendars = (*policyDocuments)(nil)

// Calendar finds a calendar among the ConfigMaps. A file does not say how old it is: it counts as new.
func (d *policyDocuments) Calendar(ref schedule.ConfigMapKey) (schedule.Calendar, error) {
	data, ok := d.maps[ref.Name][ref.Key]
	if !ok {
		return schedule.NoCalendars.Calendar(ref)
	}
	return schedule.Calendar{Data: []byte(data), Modified: d.now}, nil
}
