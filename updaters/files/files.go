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
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "files"

// Updater brings files to running nodes, as far as its table says what a change of their path takes.
type Updater struct{ rules disruption.Rules }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of a path takes.
func New(rules disruption.Rules) *Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater. A file is claimed as a whole or not at all.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := kubeadmconfig.Change(c)
	if !ok {
		return claim, nil
	}
	j := judge{
		rules: u.rules, current: byPath(oc.Current), desired: byPath(oc.Desired),
		format: kubeadmconfig.Format(oc.Desired), known: map[string]judgement{},
	}
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return updaters.Claim{}, err
		}
		if !kubeadmconfig.Below(f, Name) {
			continue
		}
		path, _ := kubeadmconfig.Item(f, "path")
		actions, err := j.field(f)
		claim.AddOf(node.FileRef(path), f, actions, err)
	}
	return claim, nil
}

// judge judges the files of one change.
type judge struct {
	rules            disruption.Rules
	current, desired map[string]file
	format           string
	// known are those that are judged already, by path: every field of a file has what the file has.
	known map[string]judgement
}

// judgement is what the change of a file takes, or why it can't be made in place.
type judgement struct {
	actions []disruption.Action
	err     error
}

// field judges one field. A file that differs is claimed as a whole or not at all, since all of its fields make one file.
func (j *judge) field(f fieldset.Field) ([]disruption.Action, error) {
	if path, ok := kubeadmconfig.Item(f, "path"); ok {
		known, ok := j.known[path]
		if !ok {
			known.actions, known.err = j.file(path)
			j.known[path] = known
		}
		return known.actions, known.err
	}
	if f.Operation == fieldset.Reordered || len(j.current)+len(j.desired) == 0 {
		// The paths are unique, so the order means nothing.
		return []disruption.Action{{Type: disruption.None}}, nil
	}
	return nil, errors.New("two files have the same path, or one has none")
}

// file judges the change of the file at a path.
func (j *judge) file(path string) ([]disruption.Action, error) {
	current, desired := j.current[path], j.desired[path]
	if current != nil && current["append"] == true {
		return nil, errors.New("append is not idempotent: what it appended can't be taken back")
	}
	if desired != nil {
		if reason := desired.unsupported(j.format); reason != "" {
			return nil, errors.New(reason)
		}
	}
	if !disruption.ByContents(path) { // for the others the contents do not matter, and can be large when unpacked
		return j.rules.Actions(path)
	}
	return j.rules.ActionsFor(path, current.known(j.format), desired.known(j.format))
}

// Desire implements updaters.NodeUpdater. Files that can't be made in place are named as unmanaged: the agent leaves
// them as bootstrap made them. With the file of a unit comes the unit, if it can be enabled.
func (u *Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		return nil, nil
	}
	var resources []node.Resource
	for _, f := range list(d.BootstrapConfig) {
		if f.unsupported(kubeadmconfig.Format(d.BootstrapConfig)) != "" {
			resources = append(resources, node.Resource{File: &node.File{Path: f.path(), Unmanaged: true}})
			continue
		}
		r, err := f.resource(kubeadmconfig.Format(d.BootstrapConfig), d.Secret)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.path(), err)
		}
		resources = append(resources, r)
		if enabled, ok := unit(*r.File); ok {
			resources = append(resources, enabled)
		}
	}
	return resources, nil
}

func list(s fieldset.Spec) []file {
	var out []file
	for _, m := range kubeadmconfig.List(s, Name) {
		out = append(out, m)
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
