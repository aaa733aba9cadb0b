package files

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// maxDecoded bounds a file's decoded content, so that a small archive can't fill a node's memory.
const maxDecoded = 32 << 20

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

// unsupported says why the file can't be brought to a running node, or nothing.
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
	if f.str("encoding") != "" {
		if _, err := f.decode([]byte(f.str("content"))); err != nil {
			return err.Error()
		}
		return ""
	}
	return literal(f.str("content"), format)
}

// literal says why cloud-init would lay down other bytes than the content, or nothing.
func literal(content, format string) string {
	if format == "ignition" {
		return ""
	}
	if i := slices.IndexFunc([]string{"{{", "{%", "{#"}, func(s string) bool { return strings.Contains(content, s) }); i >= 0 {
		return "the content has a Jinja expression, which cloud-init renders on a new machine only; write it in base64 to have it as it is"
	}
	if strings.ContainsRune(content, '\r') {
		return "the content has carriage returns, which cloud-init's YAML changes on a new machine; write it in base64 to have it as it is"
	}
	return ""
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

// decode undoes the file's encoding.
func (f file) decode(raw []byte) ([]byte, error) {
	encoding := f.str("encoding")
	if strings.HasSuffix(encoding, "base64") {
		compact := bytes.Join(bytes.Fields(raw), nil)
		decoded, err := base64.StdEncoding.AppendDecode(nil, compact)
		if err != nil {
			return nil, errors.New("the content is not valid base64")
		}
		raw = decoded
	}
	if !strings.HasPrefix(encoding, "gzip") {
		return raw, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("the content is not valid gzip")
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxDecoded+1))
	if err != nil {
		return nil, errors.New("the content is not valid gzip")
	}
	if len(plain) > maxDecoded {
		return nil, fmt.Errorf("the content is larger than %d MiB when unpacked", maxDecoded>>20)
	}
	return plain, nil
}

// resource returns the file as the agent takes it.
func (f file) resource(format string, secret func(name, key string) ([]byte, error)) (node.Resource, error) {
	raw := []byte(f.str("content"))
	if f.usesSecret() {
		name, key := f.secret()
		b, err := secret(name, key)
		if err != nil {
			return node.Resource{}, fmt.Errorf("read the content: %w", err)
		}
		raw = b
		if reason := literal(string(raw), format); f.str("encoding") == "" && reason != "" {
			return node.Resource{}, fmt.Errorf("key %s of Secret %s: %s", key, name, reason)
		}
	}
	content, err := f.decode(raw)
	if err != nil {
		return node.Resource{}, err
	}
	if f.str("encoding") == "" && format != "ignition" {
		content = asLiteralBlock(content)
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
	return node.Resource{File: &node.File{Path: f.path(), Content: content, Owner: owner, Mode: mode}}, nil
}

// asLiteralBlock ends the content with exactly one newline. The bootstrap provider hands plain content to cloud-init as
// a YAML literal block, which has this effect; a machine updated in place should hold the same bytes as a new one.
func asLiteralBlock(content []byte) []byte {
	trimmed := bytes.TrimRight(content, "\n")
	if len(trimmed) == 0 {
		return nil
	}
	return append(bytes.Clone(trimmed), '\n')
}
