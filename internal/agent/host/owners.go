package host

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// Owners resolves names of users and groups as the node's own files have them. What a directory service knows is not seen:
// asking it needs the node's libraries, and files of a node don't belong to people.
type Owners struct {
	users, groups map[string]int
}

// LoadOwners reads the node's names of users and groups.
func LoadOwners(root Root) (Owners, error) {
	users, err := loadNames(root, "/etc/passwd")
	if err != nil {
		return Owners{}, err
	}
	groups, err := loadNames(root, "/etc/group")
	return Owners{users: users, groups: groups}, err
}

// loadNames reads names and numbers, the first and third columns of passwd and group.
func loadNames(root Root, p string) (map[string]int, error) {
	f, _, err := root.Open(p)
	if err != nil || f == nil {
		return nil, err
	}
	defer f.Close()
	names := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		columns := strings.Split(lines.Text(), ":")
		if len(columns) < 3 {
			continue
		}
		if id, err := strconv.Atoi(columns[2]); err == nil {
			if _, seen := names[columns[0]]; !seen {
				names[columns[0]] = id
			}
		}
	}
	return names, lines.Err()
}

// Resolve returns the numbers of an owner written as "user:group".
func (o Owners) Resolve(owner string) (uid, gid int, err error) {
	user, group, ok := strings.Cut(owner, ":")
	if !ok || user == "" || group == "" {
		return 0, 0, fmt.Errorf("owner %q is not of the form user:group", owner)
	}
	if uid, ok = number(user, o.users); !ok {
		return 0, 0, fmt.Errorf("user %q of owner %q is not in the node's /etc/passwd", user, owner)
	}
	if gid, ok = number(group, o.groups); !ok {
		return 0, 0, fmt.Errorf("group %q of owner %q is not in the node's /etc/group", group, owner)
	}
	return uid, gid, nil
}

// Unknown returns the names of an owner that the node does not have. One that it has, or that is a number, is empty. It reports whether the
// owner has the form of one.
func (o Owners) Unknown(owner string) (user, group string, ok bool) {
	user, group, ok = strings.Cut(owner, ":")
	if !ok || user == "" || group == "" {
		return "", "", false
	}
	if _, known := number(user, o.users); known {
		user = ""
	}
	if _, known := number(group, o.groups); known {
		group = ""
	}
	return user, group, true
}

// Same reports whether two owners are the same, by number if both are known.
func (o Owners) Same(a, b string) bool {
	if a == b {
		return true
	}
	auid, agid, aerr := o.Resolve(a)
	buid, bgid, berr := o.Resolve(b)
	return aerr == nil && berr == nil && auid == buid && agid == bgid
}

// number returns the number that a name stands for. Ids are 32 bits wide; the highest means "none".
func number(name string, names map[string]int) (int, bool) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return int(n), n < 1<<32-1
	}
	n, ok := names[name]
	return n, ok
}
