// Package users is the updater for spec.users of a KubeadmConfig: accounts, their passwords, groups, sudo rules and SSH keys.
package users

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "users"

const (
	root = "root"
	keys = "sshAuthorizedKeys"
)

// Updater brings accounts to running nodes.
type Updater struct{ rules disruption.Rules }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of accounts and of their SSH keys takes.
func New(rules disruption.Rules) *Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := kubeadmconfig.Change(c)
	if !ok {
		return claim, nil
	}
	current, desired := byName(oc.Current), byName(oc.Desired)
	format := kubeadmconfig.Format(oc.Desired)
	read := map[string]error{} // by name: every field of a user asks for the whole user
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return updaters.Claim{}, err
		}
		if !kubeadmconfig.Below(f, "users") {
			continue
		}
		ch := change{field: f, format: format}
		if name, ok := kubeadmconfig.Item(f, "name"); ok {
			ch.name, ch.current, ch.desired = name, current[name], desired[name]
			if _, known := read[name]; !known {
				read[name] = ch.readable()
			}
			ch.err = read[name]
		}
		actions, err := u.judge(ch, none(oc.Current) && none(oc.Desired))
		claim.Add(f, actions, err)
	}
	return claim, nil
}

// change is a field of spec.users that differs.
type change struct {
	field  fieldset.Field
	format string
	// name is the user's. It is empty when the field is the list itself.
	name             string
	current, desired map[string]any
	// err says why the user can't be read.
	err error
}

// readable returns an error that says why the user can't be read: as it is desired or, if it is to go, as it is.
func (c change) readable() error {
	if c.desired == nil {
		_, err := read(c.current, c.format)
		return err
	}
	_, err := read(c.desired, c.format)
	return err
}

// judge returns what the change takes, or why it can't be made in place.
func (u *Updater) judge(c change, nobody bool) ([]disruption.Action, error) {
	switch {
	case c.name != "":
		return u.judgeUser(c)
	case nobody || c.field.Operation == fieldset.Reordered:
		return []disruption.Action{{Type: disruption.None}}, nil // the names are unique, so the order means nothing
	default:
		return nil, errors.New("two users have the same name, or one has none")
	}
}

func (u *Updater) judgeUser(c change) ([]disruption.Action, error) {
	if c.desired == nil {
		if c.err != nil {
			return nil, fmt.Errorf("the user was not made by refit, and is not taken away by it: %w", c.err)
		}
		return u.judgeAll(c.name, c.current, c.format)
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.current == nil {
		return u.judgeAll(c.name, c.desired, c.format)
	}
	field := kubeadmconfig.Location(c.field)[1]
	if field == keys {
		return u.rules.Domain(disruption.SSHKeys)
	}
	if err := c.possible(field); err != nil {
		return nil, err
	}
	return u.rules.Domain(disruption.Users)
}

// judgeAll is about a user that comes or goes.
func (u *Updater) judgeAll(name string, entry map[string]any, format string) ([]disruption.Action, error) {
	if name == root {
		if len(entry) > 2 || len(entry) == 2 && entry[keys] == nil {
			return nil, errRoot
		}
		return u.rules.Domain(disruption.SSHKeys)
	}
	if format == kubeadmconfig.Ignition {
		for _, field := range []string{"lockPassword", "sudo"} {
			if entry[field] != nil {
				return nil, ofIgnition[field]
			}
		}
	}
	actions, err := u.rules.Domain(disruption.Users)
	if err != nil {
		return nil, err
	}
	// The node sees to the keys of whoever comes or goes, listed or not.
	forKeys, err := u.rules.Domain(disruption.SSHKeys)
	return disruption.Merge(actions, forKeys), err
}

var errRoot = errors.New("of root only the SSH keys are changed in place")

// Why fields of a user that is there before and after can't be changed in place.
var (
	// kept are fields that are not changed at all.
	kept = map[string]error{
		"homeDir":      errors.New("the home directory of a user is not moved"),
		"primaryGroup": errors.New("the primary group of a user is not changed: the user's files would stay with the other group"),
	}
	// staying are fields of which nothing is taken away.
	staying = map[string]error{
		"shell": errors.New("which shell a new user has is the node's choice and not known here; name one instead"),
		"gecos": errors.New("the comment of a user is not taken away; write another one instead"),
	}
	// ofIgnition are fields that the bootstrap provider brings to a new machine otherwise with Ignition than with cloud-init.
	ofIgnition = map[string]error{
		"lockPassword": errors.New("with format ignition it is a part of sshd's configuration, which is only written on a new machine"),
		"sudo":         errors.New("with format ignition the rule is in a file of the same name as the user, which is only written on a new machine"),
	}
)

// possible returns an error that says why a field of a user that is there before and after can't be changed in place, or nil.
func (c change) possible(field string) error {
	err := kept[field]
	if err == nil && c.name == root {
		err = errRoot
	}
	if err == nil && c.format == kubeadmconfig.Ignition {
		err = ofIgnition[field]
	}
	if v := c.desired[field]; err == nil && (v == nil || v == "") {
		err = staying[field]
	}
	return err
}

// Desire implements updaters.NodeUpdater. Users that can't be made in place are named as unmanaged: the agent leaves them
// as bootstrap made them.
func (u *Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		return nil, nil
	}
	var resources []node.Resource
	format, times := kubeadmconfig.Format(d.BootstrapConfig), map[string]int{}
	entries := kubeadmconfig.List(d.BootstrapConfig, "users")
	for _, e := range entries {
		name, _ := e["name"].(string)
		times[name]++
	}
	for _, e := range entries {
		name, _ := e["name"].(string)
		a, err := read(e, format)
		switch {
		case name == "" || times[name] == 0:
			continue // what has no name can't be named, and what was named is not named again
		case err != nil || times[name] > 1:
			a.User, times[name] = node.User{Name: name, Unmanaged: true}, 0
		default:
			if err := a.resolve(d.Secret, format); err != nil {
				return nil, fmt.Errorf("user %s: %w", name, err)
			}
		}
		resources = append(resources, node.Resource{User: &a.User})
	}
	return resources, nil
}

// resolve reads the hash of the password out of its Secret.
func (a *account) resolve(secret func(name, key string) ([]byte, error), format string) error {
	if a.secret != "" {
		raw, err := secret(a.secret, a.key)
		if err != nil {
			return fmt.Errorf("read the password's hash: %w", err)
		}
		hash, err := kubeadmconfig.Text(strings.TrimSpace(string(raw)), format)
		if err == nil {
			err = validHash(hash)
		}
		if err != nil {
			return fmt.Errorf("what passwdFrom refers to %w", err)
		}
		a.PasswordHash = hash
	}
	if format == kubeadmconfig.Ignition {
		a.Sudo = "" // it is in a file of Ignition's, which nobody changes
		if a.PasswordHash != "" {
			a.LockPassword = new(false) // Ignition locks no password that it sets
		}
	}
	return nil
}

// none reports whether the spec lists no users. That it does so by an empty list makes no difference.
func none(s fieldset.Spec) bool {
	v := kubeadmconfig.Mapping(s)["users"]
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

func byName(s fieldset.Spec) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, e := range kubeadmconfig.List(s, "users") {
		if name, ok := e["name"].(string); ok {
			out[name] = e
		}
	}
	return out
}
