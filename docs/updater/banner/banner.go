// Package banner is an example of an updater: for spec.banner of an AcmeConfig, what a terminal shows before one logs in.
package banner

import (
	"context"
	"errors"
	"strings"

	"github.com/capi-refit/refit/updaters"
)

// Name is the updater's name.
const Name = "banner"

const (
	field = "banner"
	path  = "/etc/issue"
)

// Updater brings spec.banner to running nodes.
type Updater struct{ rules updaters.Rules }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of a file takes.
func New(rules updaters.Rules) updaters.Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(_ context.Context, c updaters.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := c.Object(updaters.BootstrapConfig)
	if !ok || !isOurs(oc.Desired) {
		return claim, nil
	}
	for _, f := range oc.Fields {
		if len(f.Path) == 0 || f.Path[0].FieldName == nil || *f.Path[0].FieldName != field {
			continue // another family's
		}
		actions, err := u.judge(oc.Desired)
		if err != nil {
			claim.Left = append(claim.Left, updaters.Left{Field: f, Reason: err.Error()})
		} else {
			claim.Covered = append(claim.Covered, updaters.Covered{Field: f, Actions: actions})
		}
	}
	return claim, nil
}

// judge returns what the change takes, or why it can't be made in place.
func (u *Updater) judge(desired updaters.Spec) ([]updaters.Action, error) {
	if _, _, err := read(desired); err != nil {
		return nil, err
	}
	return u.rules.Actions(path)
}

// Desire implements updaters.NodeUpdater. Without a banner there is no resource, and the agent puts back the file that was
// there before. One that can't be made in place is named as unmanaged, and left as bootstrap made it.
func (u *Updater) Desire(d updaters.Desired) ([]updaters.Resource, error) {
	if !isOurs(d.BootstrapConfig) {
		return nil, nil
	}
	text, ok, err := read(d.BootstrapConfig)
	switch {
	case err != nil:
		return []updaters.Resource{{File: &updaters.File{Path: path, Unmanaged: true}}}, nil
	case !ok:
		return nil, nil
	}
	return []updaters.Resource{{File: &updaters.File{Path: path, Content: []byte(text + "\n"), Owner: "root:root", Mode: "0644"}}}, nil
}

// read returns the banner, and whether there is one. Claim and Desire both ask it, so that they can't disagree.
func read(s updaters.Spec) (text string, ok bool, err error) {
	spec, _ := s.Value.(map[string]any)
	value, ok := spec[field]
	if !ok {
		return "", false, nil
	}
	text, ok = value.(string)
	if !ok || strings.Contains(text, `\`) {
		return "", false, errors.New(`a banner is text without backslashes, for which a terminal would put something else; write it without`)
	}
	return text, true, nil
}

func isOurs(s updaters.Spec) bool {
	return s.Group() == "bootstrap.acme.example" && s.Kind == "AcmeConfig"
}
