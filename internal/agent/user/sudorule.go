package user

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// plainWord is a word of sudoers that means itself: no alias, no pattern, no list, no negation.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_./@%+-]+$`)

// sudoTags are the tags of sudoers that a rule may have, each with what it does to a command.
var sudoTags = map[string]func(*sudoGrant){
	"NOPASSWD": func(g *sudoGrant) { g.noPassword = true }, "PASSWD": func(g *sudoGrant) { g.noPassword = false },
	"NOEXEC": func(g *sudoGrant) { g.confined = true }, "EXEC": func(g *sudoGrant) { g.confined = false },
	"SETENV": func(*sudoGrant) {}, "NOSETENV": func(*sudoGrant) {}, "MAIL": func(*sudoGrant) {}, "NOMAIL": func(*sudoGrant) {},
	"LOG_INPUT": func(*sudoGrant) {}, "NOLOG_INPUT": func(*sudoGrant) {}, "LOG_OUTPUT": func(*sudoGrant) {}, "NOLOG_OUTPUT": func(*sudoGrant) {},
}

// sudoGrant is a command of a rule with what counts for it. A command takes over what is said ahead of the one before it.
type sudoGrant struct {
	command                    string
	root, noPassword, confined bool
}

func (g sudoGrant) complete() bool { return g.root && g.noPassword && !g.confined }

// becomesRoot reports whether a rule, by itself, gives what refit needs: the gate's command if one is named, or everything. What it does
// not understand it does not believe. Of several commands that match sudo takes the last.
func becomesRoot(rule, gate string) bool {
	grants, ok := parseRule(rule)
	if !ok {
		return false
	}
	granted := false
	for _, g := range grants {
		switch {
		case g.command == "ALL" || gate != "" && (g.command == gate || g.command == firstWord(gate)):
			granted = g.complete()
		case !g.complete() && (gate == "" || path.Base(firstWord(g.command)) == path.Base(firstWord(gate))):
			// Refit runs more than one program then. And sudo takes two names of one file for the same.
			granted = false
		}
	}
	return granted
}

// parseRule reads what follows the user's name in sudoers, if it is in the form ALL=(users) TAG: command, command.
func parseRule(rule string) (grants []sudoGrant, ok bool) {
	hosts, rest, ok := strings.Cut(rule, "=")
	if !ok || strings.TrimSpace(hosts) != "ALL" {
		return nil, false
	}
	now := sudoGrant{root: true}
	for {
		var text string
		if rest, ok = now.takeRunas(rest); !ok {
			return nil, false
		}
		rest = now.takeTags(rest)
		text, rest, ok = strings.Cut(rest, ",")
		if now.command = fields(text); !isCommand(now.command) {
			return nil, false
		}
		grants = append(grants, now)
		if !ok {
			return grants, true
		}
	}
}

// takeRunas reads (users:groups), if it is there. Without users a command runs as who calls sudo.
func (g *sudoGrant) takeRunas(text string) (rest string, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "(") {
		return text, true
	}
	inner, rest, ok := strings.Cut(text[1:], ")")
	users, groups, _ := strings.Cut(inner, ":")
	g.root = false
	for _, list := range []string{users, groups} {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			if name != "" && !plainWord.MatchString(name) {
				return "", false
			}
		}
	}
	for name := range strings.SplitSeq(users, ",") {
		g.root = g.root || slices.Contains([]string{"root", "ALL"}, strings.TrimSpace(name))
	}
	return rest, ok
}

func (g *sudoGrant) takeTags(text string) (rest string) {
	for {
		tag, after, ok := strings.Cut(text, ":")
		set := sudoTags[strings.TrimSpace(tag)]
		if !ok || set == nil {
			return text
		}
		set(g)
		text = after
	}
}

// isCommand reports whether sudo takes the text for one command, or for all.
func isCommand(text string) bool {
	words := strings.Fields(text)
	switch {
	case text == "ALL":
		return true
	case len(words) == 0 || !path.IsAbs(words[0]) || path.Clean(words[0]) != words[0]: // a directory ends in a slash
		return false
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !plainWord.MatchString(w) })
}

func firstWord(text string) string {
	first, _, _ := strings.Cut(text, " ")
	return first
}

// boundTo finds what a key of authorized_keys is bound to.
var boundTo = regexp.MustCompile(`(?i)(?:^|,)command="([^"\\]*)"`)

// bySudo is how a command begins that goes through sudo.
var bySudo = regexp.MustCompile(`^(/usr/bin/|/bin/)?sudo( -n| --)* `)

// gateCommand returns what sudo has to let the login run, or "" where that is everything.
func (p plan) gateCommand() string {
	login := p.question.Login
	if !login.Gate {
		return ""
	}
	command := login.Command
	if command == "" { // it comes in by a key, which says it
		for _, k := range loginKeys(login, keysOf(string(p.view.keys.Content))) {
			if m := boundTo.FindStringSubmatch(k.options); m != nil && isCommand(bySudo.ReplaceAllString(fields(m[1]), "")) {
				command = m[1]
			}
		}
	}
	if command == "" {
		command = node.DefaultGate
	}
	return bySudo.ReplaceAllString(fields(command), "")
}

// probe is what sudo is asked about: the gate, or, for everything, a shell.
func (p plan) probe() []string {
	if gate := p.gateCommand(); gate != "" {
		return strings.Fields(gate)
	}
	return []string{"/bin/sh"}
}

// sudoAllows asks sudo itself, which knows all rules, whether a user can run a command as root. It does not tell whether sudo would ask
// for a password.
func (k *Kind) sudoAllows(ctx context.Context, user string, command []string) bool {
	if k.host.Program("sudo") == "" {
		return false
	}
	_, err := k.host.Run(ctx, host.Command{Name: "sudo", Args: append([]string{"-n", "-l", "-U", user, "--"}, command...)})
	return err == nil
}
