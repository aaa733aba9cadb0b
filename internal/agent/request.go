package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// maxRequest bounds what is read from stdin. A KubeadmConfig is limited by etcd to far less.
const maxRequest = 64 << 20

// Digests become names of files and units.
var digestForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9:_-]{0,127}$`)

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

// validate checks a request and returns its files by path, with the defaults filled in.
func validate(req node.Request) (map[string]node.File, error) {
	switch {
	case req.Protocol != node.Protocol:
		return nil, invalidf("the request is of protocol %d, this agent speaks protocol %d", req.Protocol, node.Protocol)
	case req.Machine.UID == "":
		return nil, invalidf("the request does not say which Machine is meant: machine.uid is empty")
	case !digestForm.MatchString(req.Digest):
		return nil, invalidf("digest %q is not of the form %s", req.Digest, digestForm)
	case req.OnConflict != node.Overwrite && req.OnConflict != node.Refuse:
		return nil, invalidf("onConflict %q is neither %s nor %s", req.OnConflict, node.Overwrite, node.Refuse)
	case req.WaitSeconds < 0 || req.Token < 0:
		return nil, invalidf("waitSeconds and token can't be negative")
	}
	if err := validateBaseline(req.Baseline); err != nil {
		return nil, err
	}
	return validateResources(req.Resources)
}

func validateResources(resources []node.Resource) (map[string]node.File, error) {
	files := map[string]node.File{}
	for i, r := range resources {
		if r.File == nil {
			return nil, invalidf("resource %d is of no kind that this agent knows", i)
		}
		f := *r.File
		f.Owner, f.Mode = orDefault(f.Owner, defaultOwner), orDefault(f.Mode, defaultMode)
		if err := disruption.ValidPath(f.Path); err != nil {
			return nil, invalidf("resource %d: %v", i, err)
		}
		if _, twice := files[f.Path]; twice {
			return nil, invalidf("%s is wanted twice", f.Path)
		}
		if _, err := parseMode(f.Mode); err != nil {
			return nil, invalidf("%s: %v", f.Path, err)
		}
		files[f.Path] = f
	}
	return files, nil
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
