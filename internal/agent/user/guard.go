package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// another is what to do about a change that would close refit's own way in.
const another = "have refit log in another way first (NodeAccess)"

// blocked returns why the change can't be made, or must not be, and what to do. Nothing has been changed by then.
func (k *Kind) blocked(ctx context.Context, p plan) string {
	for _, reason := range []func(context.Context, plan) string{
		malformed, badKeys, k.lacks, k.homeUnsafe, k.homeTaken, k.shellMissing, guardRoot, k.guardLogin, guardKeys, k.keysStay, k.sudoWrong,
	} {
		if text := reason(ctx, p); text != "" {
			return text
		}
	}
	return ""
}

// lacks names a program that the change takes and the node does not have.
func (k *Kind) lacks(_ context.Context, p plan) string {
	account := slices.ContainsFunc(p.scope, func(a aspect) bool { return a != aspectSudo && a != aspectKeys })
	groups := p.creates || slices.Contains(p.scope, aspectGroups)
	for _, need := range []struct {
		program string
		needed  bool
	}{
		{"useradd", p.creates},
		{"usermod", account},
		{"chpasswd", account},
		{"groupadd", groups && len(p.view.db.missingGroups(p.groups())) > 0},
	} {
		if need.needed && k.host.Program(need.program) == "" {
			return fmt.Sprintf("the node has no %s: install the package passwd (Debian) or shadow-utils", need.program)
		}
	}
	return ""
}

// malformed returns what can't be in the files that it would be written to. It does not repeat it.
func malformed(_ context.Context, p plan) string {
	g := p.goal
	columns := map[string]string{"gecos": g.gecos, "shell": g.shell, "the password's hash": g.password, "homeDir": p.who.HomeDir}
	for _, what := range []string{"gecos", "shell", "the password's hash", "homeDir"} {
		if strings.ContainsRune(columns[what], ':') || strings.ContainsFunc(columns[what], isControl) {
			return what + " has a colon or a control character, which can't be in /etc/passwd or /etc/shadow: take it out"
		}
	}
	for _, name := range append(slices.Clone(g.groups), p.who.PrimaryGroup) {
		if name != "" && !nameForm.MatchString(name) {
			return fmt.Sprintf("%q is not a name for a group: it has to match %s", name, nameForm)
		}
	}
	return ""
}

// badKeys returns which key is none. It does not repeat it.
func badKeys(_ context.Context, p plan) string {
	if !slices.Contains(p.scope, aspectKeys) {
		return ""
	}
	broken := func(r rune) bool { return isControl(r) && r != '\t' }
	for i, line := range p.goal.keys {
		if _, ok := parseKey(line); !ok || strings.ContainsFunc(strings.TrimSpace(line), broken) {
			return fmt.Sprintf("SSH key %d is not one line in the form of authorized_keys: correct it", i+1)
		}
	}
	return ""
}

// homeTaken returns why what is at the place of a new account's home, or in a home, must not be touched.
func (k *Kind) homeTaken(_ context.Context, p plan) string {
	is := p.view.account
	if p.creates {
		if other := p.view.db.userOf(is.UID); other != "" && other != rootName {
			return fmt.Sprintf("%s belongs to %s: move it away, or give %s another home", is.Home, other, p.goal.name)
		}
	}
	if !slices.Contains(p.scope, aspectKeys) || !p.goal.touchesKeys() {
		return ""
	}
	if p.view.keysUnsafe != "" {
		return p.view.keysUnsafe + ": put that right on the node first"
	}
	if is.Exists && len(p.goal.keys) > 0 && (!is.hasHome() || k.stat(is.Home) == nil) {
		return fmt.Sprintf("the home %s does not exist: %s", is.Home, noHomeAdvice)
	}
	return ""
}

// homeUnsafe says whose directory a new home would be in. useradd makes a home and then gives it away, by its path: who owns a directory
// above can have it give away something else.
func (k *Kind) homeUnsafe(_ context.Context, p plan) string {
	if !p.creates {
		return ""
	}
	home := p.view.account.Home
	err := k.host.CheckOwned(path.Dir(home))
	var of *host.NotOwnedError
	var unseen *fs.PathError
	switch {
	case err == nil, errors.As(err, &unseen):
		return ""
	case !errors.As(err, &of): // a link that is not followed
		return err.Error()
	case of.UID == p.view.db.account(rootName).UID && of.Mode&0o002 == 0: // a group of people whom root has let in
		return ""
	}
	return fmt.Sprintf("%s would be in a directory that others can change: %s belongs to user %d and has mode %04o; give %s another home, or make that "+
		"directory root's", home, of.Path, of.UID, of.Mode, p.goal.name)
}

func (g goal) touchesKeys() bool { return g.removed || len(g.keys)+len(g.keysGone) > 0 }

// stat returns what is at p on the node, through links, or nil.
func (k *Kind) stat(p string) fs.FileInfo {
	info, err := k.host.Stat(p)
	if err != nil {
		return nil
	}
	return info
}

// shellMissing keeps sshd and login from refusing a user whose shell can't be run.
func (k *Kind) shellMissing(_ context.Context, p plan) string {
	if p.goal.shell == "" || !slices.Contains(p.scope, aspectShell) {
		return ""
	}
	if info := k.stat(p.goal.shell); !path.IsAbs(p.goal.shell) || info == nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Sprintf("the shell %s is not a program on the node: install it, or choose another", p.goal.shell)
	}
	return ""
}

// guardRoot leaves root's account alone.
func guardRoot(_ context.Context, p plan) string {
	if p.goal.name != rootName {
		return ""
	}
	for _, a := range p.scope {
		if a != aspectKeys {
			return fmt.Sprintf("of root nothing but its SSH keys is changed in place, and the %s differs: take that out of the specs", a)
		}
	}
	return ""
}

// guardLogin keeps the account open by which refit comes in.
func (k *Kind) guardLogin(_ context.Context, p plan) string {
	g := p.goal
	if g.name != p.question.Login.User || g.name == rootName {
		return ""
	}
	for _, what := range []string{k.closes(p), k.demotes(p)} {
		if what != "" {
			return fmt.Sprintf("refit logs in to the node as %s, and the change would %s: %s", g.name, what, another)
		}
	}
	return ""
}

// closes returns how the change would keep one from logging in to the account.
func (k *Kind) closes(p plan) string {
	g := p.goal
	switch in := func(a aspect) bool { return slices.Contains(p.scope, a) }; {
	case g.removed:
		return "lock it"
	case in(aspectLock) && *g.lock:
		return "lock its password, with which sshd can refuse its keys too"
	case in(aspectExpiry) && *g.expired:
		return "make it expire"
	case in(aspectShell) && slices.Contains(noShells, path.Base(g.shell)):
		return "give it a shell that lets nobody in"
	case in(aspectShell) && g.shell != "" && !k.listsShell(g.shell):
		return "give it a shell that /etc/shells does not list"
	}
	return ""
}

// noShells are programs that /etc/shells can list, or accounts have for a shell, and that don't run sshd's commands as a shell does.
var noShells = []string{
	"nologin", "false", "true", "git-shell", "rbash", "rksh", "rzsh", "screen", "tmux", "sync", "sleep", "passwd", "halt", "poweroff", "reboot", "shutdown",
}

// listsShell reports whether /etc/shells has a shell. Where the file is missing, none is ruled out.
func (k *Kind) listsShell(shell string) bool {
	data, state, err := k.host.ReadFile("/etc/shells")
	if err != nil || !state.Exists {
		return err == nil
	}
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) == shell {
			return true
		}
	}
	return false
}

// demotes returns how the change would keep the account from becoming root.
func (k *Kind) demotes(p plan) string {
	if gate := p.gateCommand(); slices.Contains(p.scope, aspectSudo) && !becomesRoot(p.goal.sudo, gate) {
		if gate != "" {
			return fmt.Sprintf("leave it without sudo for refit-node gate, without a password (a rule that refit understands: ALL=(root) NOPASSWD: %s)", gate)
		}
		return "leave it without sudo for everything, without a password (a rule that refit understands: ALL=(ALL) NOPASSWD: ALL)"
	}
	if slices.Contains(p.scope, aspectGroups) {
		if lost := k.sudoGroupLost(p); lost != "" {
			return fmt.Sprintf("take it out of the group %s, which sudo has a rule for", lost)
		}
	}
	return ""
}

// sudoGroupLost returns a group that the account is to lose and that sudo's rules name.
func (k *Kind) sudoGroupLost(p plan) string {
	is, want := p.view.account, p.goal.supplementary(p.view.account)
	var rules strings.Builder
	for _, name := range k.sudoersFiles() {
		if data, _, err := k.host.ReadFile(name); err == nil {
			rules.Write(data)
		}
	}
	words := strings.FieldsFunc(rules.String(), func(r rune) bool { return strings.ContainsRune(" \t\r\n,=", r) })
	for _, name := range is.Groups {
		if !slices.Contains(want, name) && slices.Contains(words, "%"+name) {
			return name
		}
	}
	return ""
}

func (k *Kind) sudoersFiles() []string {
	files := []string{"/etc/sudoers"}
	entries, err := k.host.ReadDir("/etc/sudoers.d")
	if err != nil {
		return files
	}
	for _, e := range entries {
		files = append(files, path.Join("/etc/sudoers.d", e.Name()))
	}
	return files
}

// guardKeys keeps a key by which refit comes in where it is. A key that is not there now, as with a certificate, is not missed. One
// that is bound to the gate stays bound: refit does not come in by a shell where it expects the gate.
func guardKeys(_ context.Context, p plan) string {
	g, login := p.goal, p.question.Login
	if g.name != cmp.Or(login.User, rootName) || !slices.Contains(p.scope, aspectKeys) {
		return ""
	}
	text := string(p.view.keys.Content)
	now, then := keysOf(text), keysOf(editKeys(text, g.keys, g.keysGone))
	ours := loginKeys(login, now)
	if len(ours) == 0 {
		return ""
	}
	for _, k := range then {
		if slices.Contains(ours, k) || k.options == "" && !login.Gate && slices.ContainsFunc(ours, func(o key) bool { return o.id == k.id }) {
			return ""
		}
	}
	return fmt.Sprintf("this would be removing the only key by which refit comes in as %s: keep the key in the specs, or %s", g.name, another)
}

// loginKeys returns which of the keys that are there refit comes in by. If it is not known, it can be any.
func loginKeys(login node.Login, there []key) []key {
	if len(login.Keys) == 0 {
		return there
	}
	ours := ids(parseKeys(login.Keys))
	return slices.DeleteFunc(slices.Clone(there), func(k key) bool { return !ours[k.id] })
}

// sudoWrong returns why the rule is not accepted.
func (k *Kind) sudoWrong(ctx context.Context, p plan) string {
	if !slices.Contains(p.scope, aspectSudo) || !p.goal.sudoDiffers(p.view) {
		return ""
	}
	if err := k.checkSudo(ctx, p.goal, p.view); err != nil {
		return err.Error()
	}
	return ""
}
