package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/apischema"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/image"
)

// disruptions are NodeDisruptionPolicies, KubernetesSources and BootImagePolicies out of files, as far as a request tells which of them
// select its machine.
type disruptions struct {
	builtIn  disruption.Rules
	list     func(nodedisruption.Effective) (*updaters.Registry, error)
	policies []*nodedisruption.Policy
	sources  []*kubernetessource.Source
	images   []*bootimage.Policy
	// applied, source and notes are what For has found, and what the updaters have asked for.
	applied, notes []string
	// probes are what the policies ask the node, as people read it.
	probes []string
	source string
	// bootImages and imageNotes are what it has found about images, and matter if the infrastructure machine changes.
	bootImages, imageNotes []string
}

// explainFiles are the names of files with policies and sources.
type explainFiles struct{ policies, sources, images []string }

var _ inplace.Updaters = (*disruptions)(nil)

// readDisruptions reads files. Without NodeDisruptionPolicies, what is built in counts; without sources, there is none; without
// BootImagePolicies, no image may change.
func readDisruptions(stdin io.Reader, files explainFiles, builtIn disruption.Rules, others ...updaters.Constructor) (*disruptions, error) {
	var schemas apischema.Checker
	d := &disruptions{builtIn: builtIn, list: judges.List(others...), applied: []string{}, notes: []string{}}
	for _, of := range []struct {
		kind  string
		files []string
		take  func(doc []byte) error
	}{
		{"NodeDisruptionPolicy", files.policies, d.policy}, {"KubernetesSource", files.sources, d.kubernetes},
		{"BootImagePolicy", files.images, d.bootImage},
	} {
		for _, name := range of.files {
			data, err := readFile(stdin, name)
			if err != nil {
				return nil, err
			}
			if err := readObjects(data, of.kind, of.take, &schemas); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return d, nil
}

// readObjects reads documents, each of which is an object of the kind, or a list of them. None at all is taken for a mistake.
func readObjects(data []byte, kind string, take func(doc []byte) error, schemas *apischema.Checker) error {
	found := false
	checked := func(doc []byte) error {
		found = true
		if err := take(doc); err != nil {
			return err
		}
		if err := schemas.Check(doc); err != nil {
			var object struct {
				Metadata struct{ Name string } `json:"metadata"`
			}
			_ = json.Unmarshal(doc, &object) // it was read before
			return fmt.Errorf("API servers refuse %s %q: %w", kind, object.Metadata.Name, err)
		}
		return nil
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			if !found {
				return fmt.Errorf("there is no %s", kind)
			}
			return nil
		}
		if err != nil {
			return err
		}
		j, err := sigsyaml.YAMLToJSONStrict(doc)
		if err != nil {
			return err
		}
		if err := readObject(j, kind, checked); err != nil {
			return err
		}
	}
}

func readObject(doc []byte, kind string, take func(doc []byte) error) error {
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
	case "List", kind + "List":
		for _, item := range object.Items {
			if err := readObject(item, kind, take); err != nil {
				return err
			}
		}
		return nil
	case kind:
		return take(doc)
	default:
		return fmt.Errorf("%q is not a %s", object.Kind, kind)
	}
}

// policy takes a NodeDisruptionPolicy.
func (d *disruptions) policy(doc []byte) error {
	var policy refitv1.NodeDisruptionPolicy
	strict, err := sigsjson.UnmarshalStrict(doc, &policy)
	read := nodedisruption.Compile(&policy)
	if err := errors.Join(append(strict, err, read.Err)...); err != nil {
		return fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	d.policies = append(d.policies, read)
	return nil
}

// kubernetes takes a KubernetesSource.
func (d *disruptions) kubernetes(doc []byte) error {
	var source refitv1.KubernetesSource
	strict, err := sigsjson.UnmarshalStrict(doc, &source)
	read := kubernetessource.Compile(&source)
	if err := errors.Join(append(strict, err, read.Err)...); err != nil {
		return fmt.Errorf("source %s: %w", source.Name, err)
	}
	d.sources = append(d.sources, read)
	return nil
}

// bootImage takes a BootImagePolicy.
func (d *disruptions) bootImage(doc []byte) error {
	var policy refitv1.BootImagePolicy
	strict, err := sigsjson.UnmarshalStrict(doc, &policy)
	read := bootimage.Compile(&policy)
	if err := errors.Join(append(strict, err, read.Err)...); err != nil {
		return fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	d.images = append(d.images, read)
	return nil
}

// For implements inplace.Updaters.
func (d *disruptions) For(_ context.Context, s inplace.Subject) (*updaters.Registry, error) {
	selecting, notes := counting("policy", d.policies, s)
	d.notes = append(d.notes, notes...)
	effective := nodedisruption.Join(d.builtIn, selecting...)
	if err := disruption.TooMany(effective.Rules.Probes); err != nil {
		return nil, err
	}
	d.applied, d.notes = append(d.applied, effective.Policies...), append(d.notes, effective.Unsafe...)
	for _, p := range effective.Rules.Probes {
		d.probes = append(d.probes, p.String())
	}
	all, err := d.list(effective)
	if err != nil {
		return nil, err
	}
	return judges.Select(s, all, effective.Rules, d.mayMove(s), func(context.Context) (*kubernetessource.Selected, error) { return d.find(s) }), nil
}

// mayMove returns what the BootImagePolicies say of a machine's image.
func (d *disruptions) mayMove(s inplace.Subject) *image.Selected {
	selecting, notes := counting("BootImagePolicy", d.images, s)
	slices.SortFunc(selecting, func(a, b *bootimage.Policy) int { return strings.Compare(a.Name, b.Name) })
	selected := bootimage.Join(selecting, s.Labels)
	d.bootImages, d.imageNotes = selected.Policies, notes
	return selected
}

// find returns the source of a machine.
func (d *disruptions) find(s inplace.Subject) (*kubernetessource.Selected, error) {
	selecting, notes := counting("source", d.sources, s)
	d.notes = append(d.notes, notes...)
	selected, err := kubernetessource.One(selecting...)
	if selected != nil {
		d.source = selected.Name
	}
	return selected, err
}

// counting returns those of a kind of policies that select the machine, as far as a request tells, and what is to be said of them.
func counting[T policykind.Policy](kind string, all []T, s inplace.Subject) (selecting []T, notes []string) {
	role := selection.RoleOf(s.Labels)
	note := func(format string, args ...any) { notes = append(notes, kind+" "+fmt.Sprintf(format, args...)) }
	for _, one := range all {
		policy := one.Head()
		switch {
		case policy.Namespace != "" && s.Namespace != "" && policy.Namespace != s.Namespace:
			note("%s does not count: it is for namespace %s, and the machine is in %s", policy.Name, policy.Namespace, s.Namespace)
			continue
		case !policy.Selector.Machine(role, s.Labels):
			note("%s does not count: it does not select the machine, a %s, by its role and labels", policy.Name, role)
			continue
		case !policy.Selector.AnyCluster():
			note("%s is taken to select Cluster %s, whose labels are not known here", policy.Name, s.Cluster)
		}
		selecting = append(selecting, one)
	}
	return selecting, notes
}
