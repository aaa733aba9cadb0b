package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// maxRequest bounds what is read from stdin. A KubeadmConfig is limited by etcd to far less.
const maxRequest = 64 << 20

// Digests become names of files and units.
var digestForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9:_-]*$`)

// maxDigest is how long one may be. It is not in the form, which would then take longer to compile than all else at the start.
const maxDigest = 128

// decode reads one JSON document into v. The protocol is looked at first: fields of another version are no surprise.
func decode(r io.Reader, v any) error {
	data, err := io.ReadAll(io.LimitReader(r, maxRequest+1))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if len(data) > maxRequest {
		return invalidf("the request is larger than %d bytes", maxRequest)
	}
	var version struct {
		Protocol int `json:"protocol"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return invalidf("the request is not the JSON document that is expected: %v", err)
	}
	if version.Protocol != node.Protocol {
		return invalidf("the request is of protocol %d, this agent speaks protocol %d; bring the agent of the server's own "+
			"version to the node", version.Protocol, node.Protocol)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalidf("the request is not the JSON document that is expected: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalidf("the request is more than one JSON document")
	}
	return nil
}

// addressed returns an error unless a request is of the agent's own protocol and names a Machine.
func addressed(protocol int, m node.MachineID) error {
	switch {
	case protocol != node.Protocol:
		return invalidf("the request is of protocol %d, this agent speaks protocol %d", protocol, node.Protocol)
	case m.UID == "":
		return invalidf("the request does not say which Machine is meant: machine.uid is empty")
	}
	return nil
}

// desired is what a request wants on the node.
type desired struct {
	files map[string]node.File // by path
	// others are the resources of other kinds.
	others map[node.Ref]node.Resource
}

// validate checks a request and returns what it wants, with the defaults filled in.
func (a *Agent) validate(req node.Request) (desired, error) {
	if err := addressed(req.Protocol, req.Machine); err != nil {
		return desired{}, err
	}
	switch {
	case len(req.Digest) > maxDigest || !digestForm.MatchString(req.Digest):
		return desired{}, invalidf("digest %q is not of the form %s, or longer than %d", req.Digest, digestForm, maxDigest)
	case req.OnConflict != node.Overwrite && req.OnConflict != node.Refuse:
		return desired{}, invalidf("onConflict %q is neither %s nor %s", req.OnConflict, node.Overwrite, node.Refuse)
	case !validName(req.NoteFor):
		return desired{}, invalidf("noteFor %.40q is not the name of an UpdaterRegistration", req.NoteFor)
	case req.WaitSeconds < 0 || req.Token < 0:
		return desired{}, invalidf("waitSeconds and token can't be negative")
	}
	if err := validateBaseline(req.Baseline); err != nil {
		return desired{}, err
	}
	if err := req.Rules.Check(); err != nil {
		return desired{}, invalidf("rules: %v", err)
	}
	return a.validateResources(req.Resources)
}

func (a *Agent) validateResources(resources []node.Resource) (desired, error) {
	want := desired{files: map[string]node.File{}, others: map[node.Ref]node.Resource{}}
	for i, r := range resources {
		ref, ok := r.Ref()
		if !ok {
			return desired{}, invalidf("resource %d is of no kind that this agent knows, or of several", i)
		}
		_, twice := want.others[ref]
		switch {
		case ref.Kind == node.FileKind:
			f, err := validFile(*r.File)
			if err != nil {
				return desired{}, invalidf("resource %d: %v", i, err)
			}
			_, twice = want.files[ref.Name]
			want.files[ref.Name] = f
		case a.kinds[ref.Kind] == nil:
			return desired{}, invalidf("resource %d: this agent does not know %s", i, ref)
		case r.Unit != nil:
			if err := validUnit(*r.Unit); err != nil {
				return desired{}, invalidf("resource %d: %v", i, err)
			}
			want.others[ref] = r
		default:
			want.others[ref] = r
		}
		if twice {
			return desired{}, invalidf("%s is wanted twice", ref)
		}
	}
	return want, nil
}

// validName reports whether a name can be that of a Kubernetes object, or is empty. It comes into messages.
func validName(name string) bool {
	return len(name) <= 253 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// validFile fills in the defaults.
func validFile(f node.File) (node.File, error) {
	f.Owner, f.Mode = orDefault(f.Owner, defaultOwner), orDefault(f.Mode, defaultMode)
	if err := disruption.ValidPath(f.Path); err != nil {
		return f, err
	}
	if _, err := host.ParseMode(f.Mode); err != nil {
		return f, fmt.Errorf("%s: %w", f.Path, err)
	}
	return f, nil
}

// validUnit returns an error unless a unit may be started, stopped, enabled or masked, for each of which it is treated as one that
// is to be restarted, or may be enabled because its file is new.
func validUnit(u node.Unit) error {
	if !disruption.ValidUnit(u.Name) {
		return fmt.Errorf("%q is not the name of a systemd unit", u.Name)
	}
	if u.File == "" {
		return disruption.CheckUnit(disruption.Restart, u.Name)
	}
	if of, ok := disruption.UnitOfFile(u.File); !ok || of != u.Name || u.Active != nil || u.Masked != nil {
		return fmt.Errorf("unit %s can't be that of the file %s, or is wanted otherwise than enabled", u.Name, u.File)
	}
	return disruption.CheckUnit(disruption.None, u.Name) // enabling stops nothing that uses a mount, for example
}

// validateBaseline checks paths only. Bootstrap data lists a path twice where a later file replaces an earlier one.
func validateBaseline(b *node.Baseline) error {
	if b == nil {
		return nil
	}
	for _, f := range b.Files {
		if err := disruption.ValidPath(f.Path); err != nil {
			return invalidf("baseline: %v", err)
		}
	}
	return nil
}
