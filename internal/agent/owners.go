package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// owned reports whether a file has an owner when it is written. One that the node does not know can be one that a user of the specs brings:
// it is resolved after that. Until then the file is wanted with one that no file shows.
func (p *planner) owned(path string, f node.File, want *host.State, unknownOwner error) bool {
	if unknownOwner == nil {
		return true
	}
	if _, err := host.ParseMode(f.Mode); err != nil {
		return false
	}
	var users []*node.User
	for ref, r := range p.others {
		if ref.Kind == node.UserKind && !r.User.Unmanaged {
			users = append(users, r.User)
		}
	}
	if !p.broughtBy(users, f.Owner) {
		return false
	}
	p.work.Owners[path] = f.Owner
	want.UID, want.GID = host.KeepOwner, host.KeepOwner
	return true
}

// broughtBy reports whether users bring the names of an owner that the node does not have.
func (p *planner) broughtBy(users []*node.User, owner string) bool {
	user, group, ok := p.owners.Unknown(owner)
	return ok && (user == "" || slices.ContainsFunc(users, func(u *node.User) bool { return u.Name == user })) &&
		(group == "" || slices.ContainsFunc(users, func(u *node.User) bool { return slices.Contains(groupsOf(u), group) }))
}

// groupsOf returns the groups that there are with an account.
func groupsOf(u *node.User) []string {
	primary := u.PrimaryGroup
	if primary == "" {
		primary = u.Name
	}
	return append([]string{primary}, u.Groups...)
}

// accountsFirst puts accounts and groups that the node does not have yet before the files, which can belong to them and be in their homes,
// and blocks what belongs to one that does not come.
func (p *planner) accountsFirst() {
	var first, rest []node.Change
	var users []*node.User
	for _, c := range p.work.Plan.Changes {
		u := p.others[c.Ref].User
		if c.Kind != node.UserKind || u == nil || !p.isNew(u) {
			rest = append(rest, c)
			continue
		}
		first, users = append(first, c), append(users, u)
	}
	p.work.Plan.Changes = slices.Concat(first, rest)
	for _, path := range slices.Sorted(maps.Keys(p.work.Owners)) {
		if owner := p.work.Owners[path]; !p.broughtBy(users, owner) {
			_, _, err := p.owners.Resolve(owner)
			p.block(path, err)
		}
	}
}

// isNew reports whether a user brings a name that the node does not have. An account that is there need not have a group of its own.
func (p *planner) isNew(u *node.User) bool {
	if user, _, _ := p.owners.Unknown(u.Name + ":0"); user != "" {
		return true
	}
	return slices.ContainsFunc(append([]string{u.PrimaryGroup}, u.Groups...), func(group string) bool {
		_, unknown, _ := p.owners.Unknown("0:" + group)
		return unknown != ""
	})
}

// checkACL returns an error if a file that is written has a list that does not go to its new owner. One that is not known yet is another.
func (a *Agent) checkACL(w *work, c node.Change) error {
	if c.Operation != node.Write {
		return nil
	}
	return a.root.CheckACL(c.Name, w.Expect[c.Name].UID)
}

// expectedAt returns what the node shows of a file when all is done.
func (a *Agent) expectedAt(w *work, path string) (host.State, error) {
	want := w.Expect[path]
	owner, late := w.Owners[path]
	if !late {
		return want, nil
	}
	owners, err := host.LoadOwners(a.root)
	if err == nil {
		want.UID, want.GID, err = owners.Resolve(owner)
	}
	if err != nil {
		return host.State{}, fmt.Errorf("%s: %w", path, err)
	}
	return want, nil
}
