package files

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/cloudinit"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Defaults of cloud-init's write_files, which lays the files down on a new machine.
const (
	defaultOwner = "root:root"
	defaultMode  = "0644"
)

// knownFields are the fields of a bootstrapv1.File. One that is not here was added by a Cluster API newer than this
// program: what it means is not known, so the file is left.
var knownFields = []string{"path", "owner", "permissions", "encoding", "append", "content", "contentFrom", "contentFormat"}

// file is an entry of spec.files.
type file map[string]any

func (f file) str(name string) string { s, _ := f[name].(string); return s }

func (f file) path() string { return f.str("path") }

// unsupported returns why the file can't be brought to a running node, or nothing.
func (f file) unsupported(format string) string {
	for name := range f {
		if !slices.Contains(knownFields, name) {
			return fmt.Sprintf("this version of refit does not know the field %q of a file", name)
		}
	}
	if appends, ok := f["append"]; ok && appends != false {
		return "append is not idempotent: what a file was appended to can't be told from what was appended"
	}
	if cf := f.str("contentFormat"); cf != "" && cf != "Raw" {
		return fmt.Sprintf("contentFormat %q is rendered by the bootstrap provider only", cf)
	}
	if !slices.Contains([]string{"", "base64", "gzip", "gzip+base64"}, f.str("encoding")) {
		return fmt.Sprintf("unknown encoding %q", f.str("encoding"))
	}
	if _, err := f.mode(); err != nil {
		return err.Error()
	}
	if _, err := f.owner(); err != nil {
		return err.Error()
	}
	return f.unsupportedContent(format)
}

func (f file) unsupportedContent(format string) string {
	if f.usesSecret() {
		if name, key := f.secret(); name == "" || key == "" {
			return "contentFrom.secret needs a name and a key"
		}
		return ""
	}
	if err := f.valid(format); err != nil {
		return err.Error()
	}
	return ""
}

// valid returns the error that bytes returns for the file's own content, without unpacking it into memory.
func (f file) valid(format string) error {
	if f.str("encoding") != "" || format == "ignition" {
		return cloudinit.Check(f.str("encoding"), []byte(f.str("content")))
	}
	return cloudinit.Verbatim(f.str("content"))
}

// bytes returns what a new machine would have in the file, given the content as it was written.
func (f file) bytes(raw []byte, format string) ([]byte, error) {
	if f.str("encoding") != "" || format == "ignition" {
		return cloudinit.Decode(f.str("encoding"), raw)
	}
	if err := cloudinit.Verbatim(string(raw)); err != nil {
		return nil, err
	}
	return cloudinit.LiteralBlock(raw), nil
}

// known returns the content as far as it can be known from the spec. A file that is not there has none; nil says that it is in a
// Secret, or not readable.
func (f file) known(format string) []byte {
	if f == nil {
		return []byte{}
	}
	if f.usesSecret() {
		return nil
	}
	content, err := f.bytes([]byte(f.str("content")), format)
	if err != nil {
		return nil
	}
	return append([]byte{}, content...)
}

func (f file) usesSecret() bool { _, ok := f["contentFrom"]; return ok }

func (f file) secret() (name, key string) {
	from, _ := f["contentFrom"].(map[string]any)
	s, _ := from["secret"].(map[string]any)
	name, _ = s["name"].(string)
	key, _ = s["key"].(string)
	return name, key
}

// mode returns the permissions in the agent's form.
func (f file) mode() (string, error) {
	p := f.str("permissions")
	if p == "" {
		return defaultMode, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(p, "0o"), 8, 32)
	if err != nil || n > 0o7777 {
		return "", fmt.Errorf("permissions %q are not octal digits up to 7777", p)
	}
	return fmt.Sprintf("%04o", n), nil
}

// accountName is a user or group by name or number, as useradd takes them.
var accountName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]*\$?$`)

// owner returns user and group. Without a group it is root's, since it is root who creates the file.
func (f file) owner() (string, error) {
	o := f.str("owner")
	if o == "" {
		return defaultOwner, nil
	}
	user, group, _ := strings.Cut(o, ":")
	if group == "" {
		group = "root"
	}
	if !accountName.MatchString(user) || !accountName.MatchString(group) {
		return "", fmt.Errorf("owner %q is not of the form user:group", o)
	}
	return user + ":" + group, nil
}

// resource returns the file as the agent takes it.
func (f file) resource(format string, secret func(name, key string) ([]byte, error)) (node.Resource, error) {
	raw := []byte(f.str("content"))
	if f.usesSecret() {
		b, err := secret(f.secret())
		if err != nil {
			return node.Resource{}, fmt.Errorf("read the content: %w", err)
		}
		raw = b
	}
	content, err := f.bytes(raw, format)
	if err != nil {
		return node.Resource{}, err
	}
	mode, err := f.mode()
	if err != nil {
		return node.Resource{}, err
	}
	owner, err := f.owner()
	if err != nil {
		return node.Resource{}, err
	}
	if err := disruption.ValidPath(f.path()); err != nil {
		return node.Resource{}, err
	}
	return node.Resource{File: &node.File{Path: f.path(), Content: content, Owner: owner, Mode: mode, FromSecret: f.usesSecret()}}, nil
}
