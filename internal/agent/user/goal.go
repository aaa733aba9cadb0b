package user

import (
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// aspect is a side of an account that the specs can change by itself. What they did not change is not touched, so that a
// new key does not put back a password which alice has changed since.
type aspect string

// The aspects, under the names that people read.
const (
	aspectShell    aspect = "shell"
	aspectGecos    aspect = "gecos"
	aspectGroups   aspect = "groups"
	aspectPassword aspect = "password"
	aspectLock     aspect = "lock"
	aspectExpiry   aspect = "expiry"
	aspectSudo     aspect = "sudo"
	aspectKeys     aspect = "keys"
)

var aspects = []aspect{
	aspectShell, aspectGecos, aspectGroups, aspectPassword, aspectLock, aspectExpiry, aspectSudo, aspectKeys,
}

// sameAspect reports whether two specs say the same in one respect.
func sameAspect(a aspect, was, desired node.User) bool {
	switch a {
	case aspectShell:
		return was.Shell == desired.Shell
	case aspectGecos:
		return was.Gecos == desired.Gecos
	case aspectGroups:
		return slices.Equal(sorted(was.Groups), sorted(desired.Groups))
	case aspectPassword:
		return was.PasswordHash == desired.PasswordHash
	case aspectLock:
		return locks(was) == locks(desired)
	case aspectExpiry:
		return was.Inactive == desired.Inactive
	case aspectSudo:
		return was.Sudo == desired.Sudo
	case aspectKeys:
		return slices.Equal(was.SSHAuthorizedKeys, desired.SSHAuthorizedKeys)
	default:
		return false
	}
}

func locks(u node.User) bool { return u.LockPassword == nil || *u.LockPassword }

func sorted(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

// goal is what the node has to show of a user. The zero value of a field leaves what it is about as it is.
type goal struct {
	name string
	// removed reports that the specs no longer list the user.
	removed     bool
	shell       string
	gecos       string
	groups      []string
	groupsGone  []string
	password    string
	oldPassword string
	lock        *bool
	expired     *bool
	sudo        string
	// sudoGone reports that the user had a rule by the specs, and that it has to go.
	sudoGone bool
	keys     []string
	keysGone []string
}

// goalOf returns what the node has to show. What the specs no longer say, and had said, goes where it gives access: a key, a
// password, a rule, a group. A shell or a comment stays as it was.
func goalOf(was, desired *node.User) goal {
	var before node.User
	if was != nil {
		before = *was
	}
	if desired == nil {
		return goalOfRemoval(before)
	}
	g := goal{
		name: desired.Name, shell: desired.Shell, gecos: desired.Gecos, groups: sorted(desired.Groups), password: desired.PasswordHash,
		lock: new(locks(*desired)), expired: new(desired.Inactive), sudo: desired.Sudo, keys: desired.SSHAuthorizedKeys, keysGone: before.SSHAuthorizedKeys,
	}
	if g.password == "" {
		g.oldPassword = before.PasswordHash
	}
	if len(g.groups) == 0 {
		g.groupsGone = sorted(before.Groups)
	}
	g.sudoGone = g.sudo == "" && before.Sudo != ""
	if g.name == rootName && desired.LockPassword == nil {
		g.lock = nil // root's password is not locked for want of a word about it
	}
	return g
}

// goalOfRemoval is an account into which nobody comes. It stays, and its home does: files on the node belong to it.
func goalOfRemoval(was node.User) goal {
	g := goal{name: was.Name, removed: true, keysGone: was.SSHAuthorizedKeys}
	if g.name != rootName {
		g.lock, g.expired, g.sudoGone = new(true), new(true), true
	}
	return g
}

// differences returns the aspects in which the node does not show the goal.
func (g goal) differences(v view) []aspect {
	var what []aspect
	for _, a := range aspects {
		if g.differs(a, v) {
			what = append(what, a)
		}
	}
	return what
}

func (g goal) differs(a aspect, v view) bool {
	switch {
	case a == aspectSudo: // of no account too: what is left of a rule would count for the next account of that name
		return g.sudoDiffers(v)
	case !v.account.Exists:
		return false
	case a == aspectKeys:
		return g.keysDiffer(v)
	}
	return g.accountDiffers(a, v.account)
}

func (g goal) accountDiffers(a aspect, is account) bool {
	switch a {
	case aspectShell:
		return g.shell != "" && g.shell != is.Shell
	case aspectGecos:
		return g.gecos != "" && g.gecos != is.Gecos
	case aspectGroups:
		return !slices.Equal(g.supplementary(is), is.Groups)
	case aspectPassword:
		return g.passwordDiffers(is.hash())
	case aspectLock:
		return g.lockDiffers(is)
	default:
		return g.expired != nil && *g.expired != (is.Expires == expiredDay)
	}
}

// lockDiffers does not miss a lock that is to go where there is no password: who has none can't log in by it.
func (g goal) lockDiffers(is account) bool {
	return g.lock != nil && *g.lock != is.locked() && (*g.lock || is.hash() != "")
}

func (g goal) passwordDiffers(hash string) bool {
	if g.password != "" {
		return g.password != hash
	}
	return g.oldPassword != "" && g.oldPassword == hash
}

// expiredDay is the day on which an account ends that nobody can log in to: usermod's manual has it.
const expiredDay = "1"

// supplementary returns the groups that the account has to have. The primary group counts as there, listed or not.
func (g goal) supplementary(is account) []string {
	var want []string
	switch {
	case len(g.groups) > 0:
		for _, name := range g.groups {
			if name != is.Primary || slices.Contains(is.Groups, name) {
				want = append(want, name)
			}
		}
		if slices.Contains(is.Groups, is.Primary) && !slices.Contains(want, is.Primary) {
			want = append(want, is.Primary)
		}
	default:
		for _, name := range is.Groups {
			if !slices.Contains(g.groupsGone, name) {
				want = append(want, name)
			}
		}
	}
	return sorted(want)
}

// wantedPassword returns what has to be in /etc/shadow, given the aspects that are to be brought about.
func (g goal) wantedPassword(is account, scope []aspect) string {
	hash, locked := is.hash(), is.locked()
	if slices.Contains(scope, aspectPassword) {
		if hash == "" && g.lock != nil {
			locked = *g.lock // it was locked for want of a password
		}
		hash = g.password
	}
	if g.lock != nil && slices.Contains(scope, aspectLock) {
		locked = *g.lock
	}
	if locked || hash == "" {
		return "!" + hash
	}
	return hash
}

// fields joins what is between blanks by one blank.
func fields(s string) string { return strings.Join(strings.Fields(s), " ") }
