package users

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// knownFields are the fields of a bootstrapv1.User. One that is not here was added by a Cluster API newer than this
// program: what it means is not known, so the user is left.
var knownFields = []string{
	"name", "gecos", "groups", "homeDir", "inactive", "shell", "passwd", "passwdFrom", "primaryGroup", "lockPassword", "sudo",
	"sshAuthorizedKeys",
}

// account is what an entry of spec.users says, as a new machine reads it.
type account struct {
	node.User
	// secret and key are where the hash of the password is, when it is not in the spec.
	secret, key string
}

// read returns the account of an entry, or why it can't be brought to a running node. The error contains no values.
func read(entry map[string]any, format string) (account, error) {
	for name := range entry {
		if !slices.Contains(knownFields, name) {
			return account{}, fmt.Errorf("this version of refit does not know the field %q of a user", name)
		}
	}
	r := reader{entry: entry, format: format}
	a := account{User: node.User{
		Name:              r.text("name", validName),
		Gecos:             r.text("gecos", validGecos),
		Groups:            r.groups(),
		HomeDir:           r.text("homeDir", validPath),
		PrimaryGroup:      r.text("primaryGroup", validName),
		Shell:             r.text("shell", validPath),
		PasswordHash:      r.text("passwd", validHash),
		LockPassword:      r.flag("lockPassword"),
		Sudo:              r.text("sudo", validSudo),
		SSHAuthorizedKeys: r.keys(),
	}}
	if inactive := r.flag("inactive"); inactive != nil {
		a.Inactive = *inactive
	}
	a.secret, a.key = r.passwdFrom()
	if a.Name == "" || a.Name != entry["name"] {
		r.fail("name", errors.New("is missing, or has quotes or blanks around it"))
	}
	return a, r.err
}

// reader reads an entry, and keeps the first thing that is wrong with it.
type reader struct {
	entry  map[string]any
	format string
	err    error
}

func (r *reader) fail(what string, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("%s %w", what, err)
	}
}

// text returns a field as a new machine reads it, if it is valid.
func (r *reader) text(field string, valid func(string) error) string {
	v, ok := r.entry[field]
	if !ok {
		return ""
	}
	raw, ok := v.(string)
	if !ok {
		r.fail(field, errors.New("is not a text"))
		return ""
	}
	return r.read(field, raw, valid)
}

func (r *reader) read(what, raw string, valid func(string) error) string {
	if raw == "" {
		return "" // the bootstrap provider leaves it out
	}
	text, err := kubeadmconfig.Text(raw, r.format)
	if err == nil {
		err = valid(text)
	}
	r.fail(what, err)
	return text
}

func (r *reader) flag(field string) *bool {
	v, ok := r.entry[field]
	if !ok {
		return nil
	}
	b, ok := v.(bool)
	if !ok {
		r.fail(field, errors.New("is neither true nor false"))
		return nil
	}
	return &b
}

// groups are separated as who makes the machine separates them: cloud-init at each comma, whatever blanks are around, and
// what the bootstrap provider makes for Ignition at a comma with a blank.
func (r *reader) groups() []string {
	list := r.text("groups", func(string) error { return nil })
	if list == "" {
		return nil
	}
	separator := ","
	if r.format == kubeadmconfig.Ignition {
		separator = ", "
	}
	var groups []string
	for g := range strings.SplitSeq(list, separator) {
		g = strings.TrimSpace(g)
		if validName(g) != nil {
			r.fail("groups", errors.New("is not a list of names with commas between them that groupadd takes"))
			return nil
		}
		groups = append(groups, g)
	}
	return groups
}

func (r *reader) keys() []string {
	v, ok := r.entry["sshAuthorizedKeys"]
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		r.fail("sshAuthorizedKeys", errors.New("is not a list"))
		return nil
	}
	var keys []string
	for i, k := range list {
		what := fmt.Sprintf("sshAuthorizedKeys[%d]", i)
		raw, _ := k.(string)
		if raw == "" {
			r.fail(what, errors.New("is empty"))
		}
		keys = append(keys, r.read(what, raw, validKey))
	}
	return keys
}

func (r *reader) passwdFrom() (secret, key string) {
	v, ok := r.entry["passwdFrom"]
	if !ok {
		return "", ""
	}
	from, _ := v.(map[string]any)
	s, _ := from["secret"].(map[string]any)
	secret, _ = s["name"].(string)
	key, _ = s["key"].(string)
	if secret == "" || key == "" || len(from) != 1 || len(s) != 2 {
		r.fail("passwdFrom", errors.New("needs a secret with a name and a key, and nothing else"))
	}
	if p, _ := r.entry["passwd"].(string); p != "" {
		r.fail("passwd", errors.New("and passwdFrom are both there; one of them has to go"))
	}
	return secret, key
}

// name is what every useradd and groupadd takes, and the agent with them. A dollar sign at the end is for Samba's machines
// only, and a capital letter at the beginning makes an alias in sudoers.
var name = regexp.MustCompile(`^[a-z_][a-zA-Z0-9_.-]{0,31}$`)

func validName(s string) error {
	switch {
	case !name.MatchString(s):
		return errors.New("is not one that useradd takes: letters, digits, _, . and -, with a small letter or _ first, and no more than 32")
	case s == "default":
		return errors.New("is the one by which cloud-init means the distribution's own user")
	default:
		return nil
	}
}

func validGecos(s string) error {
	if strings.Contains(s, ":") {
		return errors.New("has a colon, which separates the fields of /etc/passwd")
	}
	return nil
}

func validPath(s string) error {
	if strings.ContainsAny(s, ": \t") || disruption.ValidPath(s) != nil {
		return errors.New("is not an absolute, clean path")
	}
	return nil
}

// hashes are the forms of crypt(5) that a Linux of today takes, but for DES: what it makes can't be told from a password.
var hashes = func() []*regexp.Regexp {
	const digit = `[./0-9A-Za-z]`
	var all []*regexp.Regexp
	for _, form := range []string{
		`\$1\$[^$:]{1,8}\$` + digit + `{22}`,
		`\$2[abxy]\$[0-9]{2}\$` + digit + `{53}`,
		`\$5\$(rounds=[0-9]{1,9}\$)?[^$:]{1,16}\$` + digit + `{43}`,
		`\$6\$(rounds=[0-9]{1,9}\$)?[^$:]{1,16}\$` + digit + `{86}`,
		`\$7\$` + digit + `{11,97}\$` + digit + `{43}`,
		`\$g?y\$` + digit + `+\$` + digit + `{0,86}\$` + digit + `{43}`,
	} {
		all = append(all, regexp.MustCompile(`^`+form+`$`))
	}
	return all
}()

// validHash never says anything of what it is given: it may be a password.
func validHash(s string) error {
	if !slices.ContainsFunc(hashes, func(r *regexp.Regexp) bool { return r.MatchString(s) }) {
		return errors.New("is not a hash of crypt(3); make one with mkpasswd or openssl passwd -6")
	}
	return nil
}

// validSudo looks for no more than that the rule stays on its line and is one; the node has visudo judge it.
func validSudo(s string) error {
	if !strings.Contains(s, "=") || strings.ContainsAny(s, `#`) || strings.HasSuffix(s, `\`) {
		return errors.New("is not a sudoers rule such as ALL=(ALL) NOPASSWD:ALL")
	}
	return nil
}

func validKey(s string) error {
	if strings.HasPrefix(s, "#") {
		return errors.New("is a comment")
	}
	k, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(s))
	if err != nil || len(rest) > 0 ||
		// The parser does not mind a type that is not the key's own, and sshd does.
		!strings.Contains(strings.Join(strings.Fields(s), " "), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))) {
		return errors.New("is not a public key as authorized_keys has them")
	}
	return nil
}
