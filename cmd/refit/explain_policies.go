package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/updaters"
)

// disruptions are NodeDisruptionPolicies out of files, as far as a request tells which of them select its machine.
type disruptions struct {
	builtIn  disruption.Rules
	policies []*nodedisruption.Policy
	// applied and notes are what For has found.
	applied, notes []string
}

var _ handlers.Updaters = (*disruptions)(nil)

// readDisruptions reads files. Without any, what is built in counts.
func readDisruptions(stdin io.Reader, files []string, builtIn disruption.Rules) (*disruptions, error) {
	d := &disruptions{builtIn: builtIn, applied: []string{}, notes: []string{}}
	for _, name := range files {
		data, err := readFile(stdin, name)
		if err != nil {
			return nil, err
		}
		if err := d.read(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return d, nil
}

// read reads documents: each is a policy, or a list of them.
func (d *disruptions) read(data []byte) error {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		j, err := sigsyaml.YAMLToJSONStrict(doc)
		if err != nil {
			return err
		}
		if err := d.add(j); err != nil {
			return err
		}
	}
}

func (d *disruptions) add(doc []byte) error {
	if doc = bytes.TrimSpace(doc); string(doc) == "null" {
		return nil
	}
	var object struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(doc, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "List", "NodeDisruptionPolicyList":
		for _, item := range object.Items {
			if err := d.add(item); err != nil {
				return err
			}
		}
		return nil
	case "NodeDisruptionPolicy":
	default:
		return fmt.Errorf("%q is not a NodeDisruptionPolicy", object.Kind)
	}
	var policy refitv1.NodeDisruptionPolicy
	strict, err := sigsjson.UnmarshalStrict(doc, &policy)
	read := nodedisruption.Compile(&policy)
	if err := errors.Join(append(strict, err, read.Err)...); err != nil {
		return fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	d.policies = append(d.policies, read)
	return nil
}

// For implements handlers.Updaters.
func (d *disruptions) For(_ context.Context, s handlers.Subject) (*updaters.Registry, error) {
	var selecting []*nodedisruption.Policy
	role := selection.RoleOf(s.Labels)
	for _, p := range d.policies {
		switch {
		case p.Namespace != "" && s.Namespace != "" && p.Namespace != s.Namespace:
			d.note("policy %s does not count: it is for namespace %s, and the machine is in %s", p.Name, p.Namespace, s.Namespace)
			continue
		case !p.Selector.Machine(role, s.Labels):
			d.note("policy %s does not count: it does not select the machine, a %s, by its role and labels", p.Name, role)
			continue
		case !p.Selector.AnyCluster():
			d.note("policy %s is taken to select Cluster %s, whose labels the request does not have", p.Name, s.Cluster)
		}
		selecting = append(selecting, p)
	}
	effective := nodedisruption.Join(d.builtIn, selecting...)
	d.applied = append(d.applied, effective.Policies...)
	return registry(effective)
}

func (d *disruptions) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}
