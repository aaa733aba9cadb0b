package user

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

const rootName = "root"

// account is what the node's own files say about a user.
type account struct {
	Exists bool `json:"exists"`
	UID    int  `json:"uid"`
	GID    int  `json:"gid"`
	// Primary is the name of the primary group.
	Primary string `json:"primary,omitempty"`
	Gecos   string `json:"gecos,omitempty"`
	// Home is where the home is, or would be if there were an account.
	Home  string `json:"home,omitempty"`
	Shell string `json:"shell,omitempty"`
	// Password is the field of /etc/shadow: a hash, with a "!" before it when the password is locked.
	Password string `json:"password,omitempty"`
	// Expires is the day on which the account ends, counted from 1970-01-01. Empty: it does not.
	Expires string `json:"expires,omitempty"`
	// Groups are the supplementary groups, sorted.
	Groups []string `json:"groups,omitempty"`
}

// hash returns the hash of the password, whether it is locked or not. It is "" when there is no password that one could log in
// by: "!", "!!" and "*" are no hashes.
func (a account) hash() string {
	return strings.Trim(strings.TrimLeft(a.Password, "!"), "*")
}

// locked reports whether nobody can log in by password.
func (a account) locked() bool {
	return strings.HasPrefix(a.Password, "!") || strings.HasPrefix(a.Password, "*")
}

// database is the node's own users and groups. What a directory service knows is not in it.
type database struct {
	users, shadows, groups [][]string
}

func (k *Kind) database() (database, error) {
	var d database
	for _, table := range []struct {
		path    string
		columns int
		rows    *[][]string
	}{{"/etc/passwd", 7, &d.users}, {"/etc/shadow", 8, &d.shadows}, {"/etc/group", 4, &d.groups}} {
		data, _, err := k.host.ReadFile(table.path)
		if err != nil {
			return d, err
		}
		for line := range strings.Lines(string(data)) {
			row := strings.Split(strings.TrimRight(line, "\n"), ":")
			if len(row) >= table.columns {
				*table.rows = append(*table.rows, row)
			}
		}
	}
	return d, nil
}

// row returns the first row of a name, as the C library does, or nil.
func row(table [][]string, name string) []string {
	for _, r := range table {
		if r[0] == name {
			return r
		}
	}
	return nil
}

func (d database) hasGroup(name string) bool { return row(d.groups, name) != nil }

// userOf returns the name of the account with a number, or "".
func (d database) userOf(uid int) string {
	for _, r := range d.users {
		if r[2] == strconv.Itoa(uid) {
			return r[0]
		}
	}
	return ""
}

// members returns who has a group as a supplementary one.
func (d database) members(group string) []string {
	r := row(d.groups, group)
	if r == nil || r[3] == "" {
		return nil
	}
	return strings.Split(r[3], ",")
}

// account returns what the node says about a user.
func (d database) account(name string) account {
	r := row(d.users, name)
	if r == nil {
		return account{}
	}
	uid, _ := strconv.Atoi(r[2])
	gid, _ := strconv.Atoi(r[3])
	a := account{Exists: true, UID: uid, GID: gid, Gecos: r[4], Home: r[5], Shell: r[6], Password: r[1]}
	if s := row(d.shadows, name); s != nil {
		a.Password, a.Expires = s[1], s[7]
	}
	for _, g := range d.groups {
		if g[2] == r[3] {
			a.Primary = cmp.Or(a.Primary, g[0])
		}
		if slices.Contains(strings.Split(g[3], ","), name) {
			a.Groups = append(a.Groups, g[0])
		}
	}
	a.Groups = sorted(a.Groups)
	return a
}

// missingGroups returns those of the groups that specs name and the node does not have, the primary group first.
func (d database) missingGroups(u node.User) []string {
	var missing []string
	for _, g := range append([]string{u.PrimaryGroup}, u.Groups...) {
		if g != "" && !d.hasGroup(g) && !slices.Contains(missing, g) {
			missing = append(missing, g)
		}
	}
	return missing
}

// homeOf returns where useradd would put a home.
func (k *Kind) homeOf(u node.User) (string, error) {
	if u.HomeDir != "" {
		return u.HomeDir, nil
	}
	base := "/home"
	data, _, err := k.host.ReadFile("/etc/default/useradd")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "HOME="); ok && path.IsAbs(value) {
			base = value
		}
	}
	return path.Join(base, u.Name), nil
}

// ownerOf returns to whom something on the node belongs.
func ownerOf(info os.FileInfo) (uid, gid int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return host.KeepOwner, host.KeepOwner
	}
	return int(stat.Uid), int(stat.Gid)
}
