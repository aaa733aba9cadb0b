package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/apischema"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

// policyDocuments are the policies of files, and the ConfigMaps with their calendars.
type policyDocuments struct {
	now      time.Time
	policies []policyDocument
	maps     map[string]map[string]string
	schemas  apischema.Checker
	// amongOthers: objects of other kinds are left out.
	amongOthers bool
}

// policyDocument is the spec of a policy, or why it can't be read.
type policyDocument struct {
	name, namespace string

	spec refitv1.ChangeManagementPolicySpec
	// cluster is the spec of a policy of the platform, which has the other one in it. Nil: it is of a namespace.
	cluster *refitv1.ClusterChangeManagementPolicySpec
	err     error
	// refused is why API servers don't take it, which is said if nothing else is wrong with it.
	refused error
}

// newPolicyDocument reads a spec. A field that is not known, or is there twice, is an error: a word that is mistyped must not
// open a window.
func newPolicyDocument(name string, spec []byte) policyDocument {
	d := policyDocument{name: name}
	d.decode(spec, &d.spec)
	return d
}

// newClusterDocument reads the spec of a policy of the platform.
func newClusterDocument(name string, spec []byte) policyDocument {
	d := policyDocument{name: name, cluster: &refitv1.ClusterChangeManagementPolicySpec{}}
	d.decode(spec, d.cluster)
	d.spec = d.cluster.ChangeManagementPolicySpec
	return d
}

// decode reads a spec.
func (d *policyDocument) decode(spec []byte, into any) {
	strict, err := sigsjson.UnmarshalStrict(spec, into)
	d.err = errors.Join(append(strict, err)...)
	var fields struct {
		Fit any `json:"fit"`
	}
	_ = json.Unmarshal(spec, &fields) // what is wrong with it has been told
	if _, boolean := fields.Fit.(bool); boolean {
		d.err = errors.New(`fit: without quotes YAML takes Off for false; write it as fit: "Off"`)
	}
}

// readPolicies reads the documents of files: each is a policy, a policy's spec, a ConfigMap, or a list of them.
func readPolicies(stdin io.Reader, files []string, now time.Time) (*policyDocuments, error) {
	if err := checkFiles(files...); err != nil {
		return nil, err
	}
	docs := &policyDocuments{now: now}
	for _, name := range files {
		if err := docs.addPath(stdin, name); err != nil {
			return nil, err
		}
	}
	if len(docs.policies) == 0 {
		return nil, fmt.Errorf("%s: there is no ChangeManagementPolicy", strings.Join(files, ", "))
	}
	return docs, nil
}

// addPath adds a file, or the files of a directory.
func (d *policyDocuments) addPath(stdin io.Reader, name string) error {
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return d.read(stdin, name)
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	d.amongOthers = true
	defer func() { d.amongOthers = false }()
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		if err := d.read(stdin, filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (d *policyDocuments) read(stdin io.Reader, name string) error {
	data, err := readFile(stdin, name)
	if err != nil {
		return err
	}
	if err := d.addFile(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// addFile adds the documents of a file. One in which nothing is, is taken for a mistake.
func (d *policyDocuments) addFile(data []byte) error {
	before := len(d.policies) + len(d.maps)
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		j, err := sigsyaml.YAMLToJSONStrict(doc)
		if err != nil {
			return err
		}
		if err := d.addJSON(j); err != nil {
			return err
		}
	}
	if len(d.policies)+len(d.maps) == before && !d.amongOthers {
		return errors.New("there is no ChangeManagementPolicy and no ConfigMap")
	}
	return nil
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
	var kind struct {
		Kind any `json:"kind"`
	}
	known := []any{"ConfigMap", "List", "ChangeManagementPolicyList", "ChangeManagementPolicy", clusterPolicyKind + "List", clusterPolicyKind}
	if err := json.Unmarshal(doc, &kind); d.amongOthers && (err != nil || !slices.Contains(known, kind.Kind)) {
		return nil // whatever it says, it is for others
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
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
	Spec  json.RawMessage   `json:"spec"`
	Data  map[string]string `json:"data"`
	// BinaryData is decoded.
	BinaryData map[string][]byte `json:"binaryData"`
}

// addObject adds an object, which doc holds as it was written.
func (d *policyDocuments) addObject(object scheduleObject, doc []byte) error {
	switch object.Kind {
	case "ConfigMap":
		d.addMap(object)
	case "List", "ChangeManagementPolicyList", clusterPolicyKind + "List":
		return d.addAll(object.Items)
	case "ChangeManagementPolicy", clusterPolicyKind:
		spec, read := object.Spec, newPolicyDocument
		if spec == nil {
			spec = []byte("{}")
		}
		if object.Kind == clusterPolicyKind {
			read, object.Metadata.Namespace = newClusterDocument, ""
		}
		policy := read(object.Metadata.Name, spec)
		policy.namespace, policy.refused = object.Metadata.Namespace, d.schemas.Check(doc)
		d.policies = append(d.policies, policy)
	case "":
		if object.Spec != nil {
			doc = object.Spec
		}
		policy := newPolicyDocument(fmt.Sprintf("%d", len(d.policies)+1), doc)
		policy.refused = new(apischema.Checker).Check(fmt.Appendf(nil, `{"apiVersion": %q, "kind": "ChangeManagementPolicy", "metadata": {"name": "spec"}, "spec": %s}`, refitv1.GroupVersion, doc))
		d.policies = append(d.policies, policy)
	default:
		return fmt.Errorf("%s is neither a ChangeManagementPolicy nor a ConfigMap", object.Kind)
	}
	return nil
}

// addMap adds a ConfigMap.
func (d *policyDocuments) addMap(object scheduleObject) {
	all := map[string]string{}
	for key, data := range object.BinaryData {
		all[key] = string(data)
	}
	maps.Copy(all, object.Data)
	if d.maps == nil {
		d.maps = map[string]map[string]string{}
	}
	d.maps[object.Metadata.Namespace+"/"+object.Metadata.Name] = all
}

func (d *policyDocuments) addAll(list []json.RawMessage) error {
	for _, doc := range list {
		if err := d.addJSON(doc); err != nil {
			return err
		}
	}
	return nil
}

// clusterPolicyKind is the kind of the platform's policies.
const clusterPolicyKind = "ClusterChangeManagementPolicy"

// compile returns a policy as the server reads it. The calendars of one of the platform are in refit's own namespace, which files don't name.
func (d *policyDocument) compile(calendars schedule.Calendars) (*changemanagement.Policy, error) {
	if d.cluster != nil {
		object := &refitv1.ClusterChangeManagementPolicy{Spec: *d.cluster}
		object.Name = d.name
		return changemanagement.CompileCluster(object, calendars)
	}
	object := &refitv1.ChangeManagementPolicy{Spec: d.spec}
	object.Name, object.Namespace = d.name, d.namespace
	return changemanagement.Compile(object, calendars)
}

// compile returns the policies as the server reads them. One that can't be read is closed, and says why when it is asked.
func (d *policyDocuments) compile() []*changemanagement.Policy {
	var all []*changemanagement.Policy
	for _, p := range d.policies {
		policy, err := p.compile(d.calendarsOf(p.namespace)) // who asks it is told what is wrong
		switch {
		case p.err != nil:
			policy.Schedule = schedule.Invalid(policy.Title(), p.err)
		case err == nil && p.refused != nil && policy.Schedule.Err(d.now) == nil:
			policy.Schedule = schedule.Invalid(policy.Title(), fmt.Errorf("API servers refuse it: %w", p.refused))
		}
		all = append(all, policy)
	}
	return all
}

// schedules returns when the policies are open.
func (d *policyDocuments) schedules() []*schedule.Schedule {
	var all []*schedule.Schedule
	for _, p := range d.compile() {
		all = append(all, p.Schedule)
	}
	return all
}

// calendarsOf returns the calendars of a namespace, among the ConfigMaps of the files. One that names no namespace is of any. A file does not say how
// old it is: it counts as new.
func (d *policyDocuments) calendarsOf(namespace string) schedule.Calendars {
	return schedule.CalendarsFunc(func(ref schedule.ConfigMapKey) (schedule.Calendar, error) {
		for _, in := range []string{namespace, ""} {
			if data, ok := d.maps[in+"/"+ref.Name][ref.Key]; ok {
				return schedule.Calendar{Data: []byte(data), Modified: d.now}, nil
			}
		}
		if namespace == "" { // a spec is of whatever namespace
			for name, keys := range d.maps {
				if data, ok := keys[ref.Key]; ok && strings.HasSuffix(name, "/"+ref.Name) {
					return schedule.Calendar{Data: []byte(data), Modified: d.now}, nil
				}
			}
		}
		return schedule.NoCalendars.Calendar(ref)
	})
}
