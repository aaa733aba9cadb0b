package user

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	sudoersMode = 0o440
	// cloudInitSudoers is where cloud-init writes the rules of all users that it makes.
	cloudInitSudoers = "/etc/sudoers.d/90-cloud-init-users"
	sudoersAbout     = "# refit manages this file by the specs of the Machine: edits are lost.\n"
)

// sudoersPath returns where the rule of a user is. sudo ignores names with a dot.
func sudoersPath(name string) string {
	return "/etc/sudoers.d/90-refit-" + strings.ReplaceAll(name, ".", "=2e")
}

func sudoersOf(name, rule string) []byte {
	return []byte(sudoersAbout + name + " " + strings.TrimSpace(rule) + "\n")
}

// sudoDiffers reports whether the rule is not as it has to be. What cloud-init has written counts as long as it says the same.
func (g goal) sudoDiffers(v view) bool {
	laidDown := rulesOf(string(v.cloudSudo.Data), g.name)
	switch {
	case g.sudo == "":
		return v.sudo.State.Exists || g.sudoGone && len(laidDown) > 0
	case !v.sudo.State.Exists:
		return !slices.Equal(laidDown, []string{fields(g.sudo)})
	default:
		return !bytes.Equal(v.sudo.Data, sudoersOf(g.name, g.sudo)) || v.sudo.State.Mode != sudoersMode || len(laidDown) > 0
	}
}

// takesRules reports whether cloud-init's file has rules that go, or are in a file of refit's from now on.
func (g goal) takesRules(v view) bool {
	return (g.sudo != "" || g.sudoGone) && len(rulesOf(string(v.cloudSudo.Data), g.name)) > 0
}

// rulesOf returns the rules of one user, without the name.
func rulesOf(text, name string) []string {
	var rules []string
	for line := range strings.Lines(text) {
		if columns := strings.Fields(line); len(columns) > 1 && columns[0] == name {
			rules = append(rules, strings.Join(columns[1:], " "))
		}
	}
	return rules
}

// withoutRules returns the text without the rules of one user, and without the line that cloud-init writes above them.
func withoutRules(text, name string) string {
	var out strings.Builder
	continued := false
	for line := range strings.Lines(text) {
		columns := strings.Fields(line)
		ours := continued || len(columns) > 0 && columns[0] == name || fields(line) == "# User rules for "+name
		continued = ours && strings.HasSuffix(strings.TrimRight(line, "\r\n"), `\`)
		if !ours {
			out.WriteString(line)
		}
	}
	return out.String()
}

// checkSudo returns an error if the rules can't be what they have to be.
func (k *Kind) checkSudo(ctx context.Context, g goal, v view) error {
	var texts []string
	if g.sudo != "" {
		if strings.ContainsFunc(g.sudo, isControl) || strings.HasSuffix(strings.TrimSpace(g.sudo), `\`) {
			return errors.New("the sudo rule is more than one line; give one rule without a line break")
		}
		texts = append(texts, string(sudoersOf(g.name, g.sudo)))
	}
	if g.takesRules(v) {
		texts = append(texts, withoutRules(string(v.cloudSudo.Data), g.name))
	}
	for _, text := range texts {
		if err := k.visudo(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// visudo has sudo's own parser read rules before sudo does: one that it can't parse can keep everybody from using sudo. It
// quotes what it reads, which is why that is not repeated. Not all versions take "-" for the standard input.
func (k *Kind) visudo(ctx context.Context, text string) error {
	if k.host.Program("visudo") == "" {
		return errors.New("the sudo rule can't be checked, since the node has no visudo: install the package sudo")
	}
	c := host.Command{Name: "visudo", Args: []string{"-cf", "/dev/stdin"}, Stdin: []byte(text)}
	if _, err := k.host.Run(ctx, c); err != nil {
		return fmt.Errorf("visudo does not accept the sudo rule (%w): correct the rule, which is what follows the user's name in sudoers", err)
	}
	return nil
}

// bringSudo writes the new rule before the old one is taken away, so that there is always one. The
// rules have been checked.
func (k *Kind) bringSudo(g goal, v view) error {
	if g.sudo == "" {
		if err := k.host.RemoveFile(sudoersPath(g.name)); err != nil {
			return err
		}
	} else {
		owned, err := k.rootOwned(sudoersMode)
		if err != nil {
			return err
		}
		if err := k.host.WriteFile(sudoersPath(g.name), sudoersOf(g.name, g.sudo), owned); err != nil {
			return err
		}
	}
	if !g.takesRules(v) {
		return nil
	}
	return k.host.WriteFile(cloudInitSudoers, []byte(withoutRules(string(v.cloudSudo.Data), g.name)), v.cloudSudo.State)
}

// rootOwned returns the state of a file of root's.
func (k *Kind) rootOwned(mode uint32) (host.State, error) {
	owners, err := host.LoadOwners(k.host.Root)
	if err != nil {
		return host.State{}, err
	}
	uid, gid, err := owners.Resolve("root:root")
	return host.State{Exists: true, UID: uid, GID: gid, Mode: mode}, err
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
