// Package files is the updater for spec.files of a KubeadmConfig.
package files

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
)

// Name is the updater's name.
const Name = "files"

// Updater brings files to running nodes, as far as its table says what a change of their path takes.
type Updater struct{ rules disruption.Table }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of a path takes.
func New(rules disruption.Table) *Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater. A file is claimed as a whole or not at all.
func (u *Updater) Claim(_ context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := c.Object(fieldset.BootstrapConfig)
	if !ok || !isKubeadmConfig(oc.Desired) {
		return claim, nil
	}
	current, desired := byPath(oc.Current), byPath(oc.Desired)
	for _, f := range oc.Fields {
		if len(f.Path) == 0 || f.Path[0].FieldName == nil || *f.Path[0].FieldName != "files" {
			continue
		}
		if actions, err := u.judgeField(f, current, desired, format(oc.Desired)); err != nil {
			claim.Left = append(claim.Left, updaters.Left{Field: f, Reason: err.Error()})
		} else {
			claim.Covered = append(claim.Covered, updaters.Covered{Field: f, Actions: actions})
		}
	}
	return claim, nil
}

// judgeField returns what the change of a field takes, or why it can't be made in place.
func (u *Updater) judgeField(f fieldset.Field, current, desired map[string]file, format string) ([]disruption.Action, error) {
	if path, ok := pathOf(f); ok {
		return u.judge(path, current[path], desired[path], format)
	}
	if f.Operation == fieldset.Reordered || len(current)+len(desired) == 0 {
		// The paths are unique, so the order means nothing.
		return []disruption.Action{{Type: disruption.None}}, nil
	}
	return nil, errors.New("two files have the same path, or one has none")
}

// judge returns what the change of one file takes, or why it can't be made in place.
func (u *Updater) judge(path string, current, desired file, format string) ([]disruption.Action, error) {
	if current != nil && current["append"] == true {
		return nil, errors.New("append is not idempotent: what it appended can't be taken back")
	}
	if desired != nil {
		if reason := desired.unsupported(format); reason != "" {
			return nil, errors.New(reason)
		}
	}
	return u.rules.Actions(path)
}

// Desire implements updaters.NodeUpdater. Files that can't be made in place are named as unmanaged: the agent leaves
// them as bootstrap made them.
func (u *Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	if !isKubeadmConfig(d.BootstrapConfig) {
		return nil, nil
	}
	var resources []node.Resource
	for _, f := range list(d.BootstrapConfig) {
		if f.unsupported(format(d.BootstrapConfig)) != "" {
			resources = append(resources, node.Resource{File: &node.File{Path: f.path(), Unmanaged: true}})
			continue
		}
		r, err := f.resource(format(d.BootstrapConfig), d.Secret)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.path(), err)
		}
		resources = append(resources, r)
	}
	return resources, nil
}

func isKubeadmConfig(s fieldset.Spec) bool {
	return s.Group() == "bootstrap.cluster.x-k8s.io" && s.Kind == "KubeadmConfig"
}

func format(s fieldset.Spec) string {
	m, _ := s.Value.(map[string]any)
	f, _ := m["format"].(string)
	return f
}

func list(s fieldset.Spec) []file {
	m, _ := s.Value.(map[string]any)
	entries, _ := m["files"].([]any)
	var out []file
	for _, e := range entries {
		if f, ok := e.(map[string]any); ok {
			out = append(out, f)
		}
	}
	return out
}

func byPath(s fieldset.Spec) map[string]file {
	out := map[string]file{}
	for _, f := range list(s) {
		out[f.path()] = f
	}
	return out
}

// pathOf returns the path of the file that a field belongs to.
func pathOf(f fieldset.Field) (string, bool) {
	if len(f.Path) < 2 || f.Path[1].Key == nil {
		return "", false
	}
	for _, k := range *f.Path[1].Key {
		if k.Name == "path" {
			return k.Value.AsString(), true
		}
	}
	return "", false
}
