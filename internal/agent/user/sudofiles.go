package user

import (
	"cmp"

	"github.com/capi-refit/refit/internal/node"
)

// LosesRoot reports whether other rules of sudo's would take from the account by which refit comes in what lets it become root. The texts
// are all rules before and after. What comes to it by a group or an alias is not seen: there the login that the node waits for tells.
func LosesRoot(before, after string, login node.Login) bool {
	if login.User == "" || login.User == rootName {
		return false
	}
	gate := ""
	if login.Gate {
		gate = bySudo.ReplaceAllString(fields(cmp.Or(login.Command, node.DefaultGate)), "")
	}
	return granted(before, login.User, gate) && !granted(after, login.User, gate)
}

// granted reports whether the last rule of a user is one that gives what refit needs.
func granted(text, name, gate string) bool {
	rules := rulesOf(text, name)
	return len(rules) > 0 && becomesRoot(rules[len(rules)-1], gate)
}
