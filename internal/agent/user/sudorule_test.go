package user

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

func TestARuleThatIsNotUnderstoodIsNotBelieved(t *testing.T) {
	const gate = node.DefaultGate
	for rule, want := range map[string]struct{ gate, shell bool }{
		"ALL=(root) NOPASSWD: " + gate:                                   {gate: true},
		"ALL=NOPASSWD:" + gate:                                           {gate: true},
		"ALL = ( root : adm ) SETENV: NOPASSWD: " + gate:                 {gate: true},
		"ALL=(root) NOPASSWD: /usr/local/sbin/refit-node":                {gate: true},
		"ALL=(root) NOPASSWD: /bin/ls, " + gate:                          {gate: true},
		"ALL=(root) /bin/ls, NOPASSWD: " + gate + ", PASSWD: /bin/cat":   {gate: true},
		"ALL=(nobody) /bin/ls, (root) NOPASSWD: " + gate:                 {gate: true},
		"ALL=(ALL:ALL) NOPASSWD: ALL":                                    {gate: true, shell: true},
		"ALL=(ALL) NOPASSWD:ALL":                                         {gate: true, shell: true},
		"ALL=(daemon, root) NOPASSWD: ALL":                               {gate: true, shell: true},
		"ALL=(ALL) /bin/ls, NOPASSWD: ALL":                               {gate: true, shell: true},
		"ALL=(ALL) NOPASSWD: ALL, PASSWD: /bin/su":                       {gate: true},
		"ALL=(root) NOPASSWD: !" + gate:                                  {},
		"ALL=(root) NOPASSWD: /bin/ls, PASSWD: " + gate:                  {},
		"ALL=(root) NOPASSWD: " + gate + ", PASSWD: " + gate:             {},
		"ALL=(root) NOPASSWD: " + gate + ", PASSWD: /sbin/refit-node":    {},
		"ALL=(root) NOPASSWD: " + gate + ", PASSWD: ALL":                 {},
		"ALL=(nobody) NOPASSWD: " + gate:                                 {},
		"ALL=(:root) NOPASSWD: " + gate:                                  {},
		"ALL=(ALL,!root) NOPASSWD: " + gate:                              {},
		"ALL=(root NOPASSWD: " + gate:                                    {},
		"ALL=(root) NOPASSWD: " + gate + " --x":                          {},
		"ALL=(root) NOPASSWD: /usr/local/sbin/refit-node plan":           {},
		"ALL=(root) NOPASSWD: /opt/elsewhere/refit-node gate":            {},
		"ALL=(root) NOPASSWD: NOEXEC: " + gate:                           {},
		"ALL=(root) NOPASSWD: INTERCEPT: " + gate:                        {},
		"ALL=(root) NOPASSWD: REFITGATE":                                 {},
		"ALL=(root) NOPASSWD: /usr/local/sbin/, !" + gate:                {},
		"ALL=(root) NOPASSWD: " + gate + `, !/usr/local/*/refit-node`:    {},
		"ALL=(root) NOPASSWD: " + gate + " : ALL=(root) PASSWD: " + gate: {},
		"otherhost=(root) NOPASSWD: " + gate:                             {},
		"ALL,!otherhost=(root) NOPASSWD: " + gate:                        {},
		", carol ALL=(root) NOPASSWD: " + gate:                           {},
		"ALL=(nobody) NOPASSWD: ALL":                                     {},
		"ALL=(postgres) NOPASSWD: ALL":                                   {},
		"ALL=(ALL) NOPASSWD: ALL, PASSWD: ALL":                           {},
		"ALL=(ALL) PASSWD: ALL":                                          {},
		"otherhost=(ALL) NOPASSWD: ALL":                                  {},
		"ALL=() NOPASSWD: ALL":                                           {},
		"ALL=(ALL) NOPASSWD: /bin/ls, PASSWD: ALL":                       {},
		"ALL=(ALL) NOPASSWD: ALL, !ALL":                                  {},
		"ALL=(ALL) NOPASSWD: !ALL":                                       {},
		"ALL=(ALL) NOPASSWD: ALL, !/bin/sh":                              {},
		"ALL=(ALL) ALL":                                                  {},
		"ALL=(ALL) NOPASSWD:":                                            {},
		"":                                                               {},
	} {
		require.Equal(t, want.gate, becomesRoot(rule, gate), "the gate: %s", rule)
		require.Equal(t, want.shell, becomesRoot(rule, ""), "everything: %s", rule)
	}
}

// loginRule is a change of the rule for sudo of the account by which refit logs in.
func loginRule(login node.Login, rule string) kind.Question {
	q := ask(with(bob(), func(u *node.User) { u.Sudo = everything }), with(bob(), func(u *node.User) { u.Sudo = rule }))
	q.Login = login
	return q
}

func TestTheRuleIsForTheGateThatTheLoginIsBoundTo(t *testing.T) {
	const elsewhere = "/opt/bin/node-gate gate"
	for name, tc := range map[string]struct {
		command, rule string
		keys          []string
		blocked       bool
	}{
		"the command of the certificates":           {command: "sudo -n " + elsewhere, rule: elsewhere},
		"not that of the certificates":              {command: "sudo -n " + elsewhere, rule: node.DefaultGate, blocked: true},
		"the command of the key":                    {keys: []string{`restrict,command="sudo -n ` + elsewhere + `" ` + keyRefit}, rule: elsewhere},
		"not that of the key":                       {keys: []string{`restrict,command="sudo -n ` + elsewhere + `" ` + keyRefit}, rule: node.DefaultGate, blocked: true},
		"the command of somebody else's key":        {keys: []string{`command="` + elsewhere + `" ` + keyAlice}, rule: elsewhere, blocked: true},
		"the command of the key, by a path of sudo": {keys: []string{`command="/usr/bin/sudo ` + elsewhere + `" ` + keyRefit}, rule: elsewhere},
		"a command of the key that is no gate":      {keys: []string{`command="exec $SHELL" ` + keyRefit}, rule: node.DefaultGate},
		"the default, as it is not known":           {rule: node.DefaultGate},
		"another than the default, not being known": {rule: elsewhere, blocked: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.keys("bob", tc.keys...)
			a := n.plan(loginRule(node.Login{User: "bob", Keys: []string{keyRefit}, Gate: true, Command: tc.command}, "ALL=(root) NOPASSWD: "+tc.rule))
			if tc.blocked {
				require.Contains(t, a.Blocked, "a rule that refit understands: ALL=(root) NOPASSWD: /")
				return
			}
			require.Empty(t, a.Blocked)
		})
	}
}

func TestShellsThatRunNoCommand(t *testing.T) {
	for name, tc := range map[string]struct{ shell, shells, want string }{
		"a shell, and no list":    {shell: "/bin/bash"},
		"a shell on the list":     {shell: "/bin/bash", shells: "# shells\n/bin/sh\n/bin/bash\n"},
		"a shell not on it":       {shell: "/bin/bash", shells: "/bin/sh\n", want: "a shell that /etc/shells does not list"},
		"a shell commented out":   {shell: "/bin/bash", shells: "#/bin/bash\n", want: "a shell that /etc/shells does not list"},
		"true":                    {shell: "/bin/true", want: "a shell that lets nobody in"},
		"git's":                   {shell: "/usr/bin/git-shell", shells: "/usr/bin/git-shell\n", want: "a shell that lets nobody in"},
		"halt":                    {shell: "/usr/sbin/halt", want: "a shell that lets nobody in"},
		"sync":                    {shell: "/usr/bin/sync", want: "a shell that lets nobody in"},
		"nologin, on the list":    {shell: "/usr/sbin/nologin", shells: "/usr/sbin/nologin\n", want: "a shell that lets nobody in"},
		"a shell of few commands": {shell: "/bin/rbash", shells: "/bin/rbash\n", want: "a shell that lets nobody in"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.PutMode(tc.shell, "", 0o755)
			if tc.shells != "" {
				n.Put("/etc/shells", tc.shells)
			}
			q := ask(bob(), with(bob(), func(u *node.User) { u.Shell = tc.shell }))
			q.Login = node.Login{User: "bob"}
			a := n.plan(q)
			if tc.want == "" {
				require.Empty(t, a.Blocked)
				return
			}
			require.Contains(t, a.Blocked, tc.want)
		})
	}
}

// TestSudoHasTheLastWord has a rule of another file win over the one that is written.
func TestSudoHasTheLastWord(t *testing.T) {
	const fakeSudo = `#!/bin/sh
[ "$*" = "-n -l -U bob -- /usr/local/sbin/refit-node gate" ] || exit 2
if [ -e "$REFIT_ROOT/etc/sudoers.d/90-refit-bob" ] && [ -e "$REFIT_ROOT/no" ]; then exit 1; fi
`
	for name, refuses := range map[string]bool{"sudo says yes": false, "sudo says no": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.PutMode("/usr/bin/sudo", fakeSudo, 0o755)
			if refuses {
				n.Put("/no", "")
			}
			before := n.snapshot("bob")
			q := loginRule(node.Login{User: "bob", Keys: []string{keyRefit}, Gate: true}, "ALL=(root) NOPASSWD: "+node.DefaultGate)
			a := n.plan(q)
			require.Empty(t, a.Blocked)
			_, err := n.kind.Make(context.Background(), change(q, a))
			if !refuses {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "sudo would not let it run /usr/local/sbin/refit-node gate, which it did before")
			require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
			require.Equal(t, before, n.snapshot("bob"))
		})
	}
}
