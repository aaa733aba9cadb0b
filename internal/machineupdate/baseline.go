package machineupdate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/cloudinit"
	"github.com/capi-refit/refit/internal/node"
)

// readBaseline returns the files that the machine's bootstrap data laid down, or nil when that is not known any more.
func (r *Reconciler) readBaseline(ctx context.Context, machine *clusterv1.Machine) (*node.Baseline, error) {
	name := machine.Spec.Bootstrap.DataSecretName
	if name == nil {
		return nil, nil
	}
	var secret corev1.Secret
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: *name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap data: %w", err)
	}
	b, err := parseBaseline(string(secret.Data["format"]), secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap data in Secret %s: %w", *name, err)
	}
	return b, nil
}

// parseBaseline reads the files out of bootstrap data. Its errors contain nothing of the data, in which there are keys
// and tokens.
func parseBaseline(format string, data []byte) (*node.Baseline, error) {
	if format == "ignition" {
		return parseIgnition(data)
	}
	return parseCloudConfig(data)
}

type cloudConfig struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Content     string `json:"content"`
		Encoding    string `json:"encoding"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
		Append      bool   `json:"append"`
	} `json:"write_files"`
}

func parseCloudConfig(data []byte) (*node.Baseline, error) {
	var c cloudConfig
	if err := yaml.Unmarshal(data, &c); err != nil {
		return nil, errors.New("it is not a cloud-config")
	}
	b := baseline{}
	for _, f := range c.WriteFiles {
		if f.Append {
			continue // what it was appended to is not known
		}
		content, err := cloudinit.Decode(f.Encoding, []byte(f.Content))
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
		b.add(f.Path, content, f.Owner, f.Permissions)
	}
	return b.sorted(), nil
}

type ignitionOwner struct {
	ID   *int   `json:"id"`
	Name string `json:"name"`
}

func (o ignitionOwner) String() string {
	switch {
	case o.Name != "":
		return o.Name
	case o.ID != nil:
		return strconv.Itoa(*o.ID)
	default:
		return "root"
	}
}

type ignitionConfig struct {
	Storage struct {
		Files []struct {
			Path     string        `json:"path"`
			Mode     *int64        `json:"mode"`
			User     ignitionOwner `json:"user"`
			Group    ignitionOwner `json:"group"`
			Append   any           `json:"append"`
			Contents struct {
				Source      string `json:"source"`
				Compression string `json:"compression"`
			} `json:"contents"`
		} `json:"files"`
	} `json:"storage"`
}

func parseIgnition(data []byte) (*node.Baseline, error) {
	var c ignitionConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, errors.New("it is not an Ignition config")
	}
	b := baseline{}
	for _, f := range c.Storage.Files {
		appends := f.Append != nil && f.Append != false
		if appends || f.Contents.Source != "" && !strings.HasPrefix(f.Contents.Source, "data:") {
			continue // what it came to is not known here
		}
		content, err := decodeDataURL(f.Contents.Source)
		if err == nil && f.Contents.Compression == "gzip" {
			content, err = cloudinit.Gunzip(content)
		}
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
		mode := ""
		if f.Mode != nil {
			mode = strconv.FormatInt(*f.Mode, 8)
		}
		b.add(f.Path, content, f.User.String()+":"+f.Group.String(), mode)
	}
	return b.sorted(), nil
}

func decodeDataURL(u string) ([]byte, error) {
	header, payload, _ := strings.Cut(strings.TrimPrefix(u, "data:"), ",")
	plain, err := url.PathUnescape(payload)
	if err != nil {
		return nil, errors.New("its content is not a data URL")
	}
	if !strings.HasSuffix(header, ";base64") {
		return []byte(plain), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(plain)
	if err != nil {
		return nil, errors.New("its content is not base64")
	}
	return decoded, nil
}

// baseline collects files by path: of two with the same path the later one counts, as it does for cloud-init, which
// writes one after the other.
type baseline map[string]node.BaselineFile

// add takes a file into the baseline, with cloud-init's defaults.
func (b baseline) add(p string, content []byte, owner, mode string) {
	sum := sha256.Sum256(content)
	user, group, _ := strings.Cut(owner, ":")
	if n, err := strconv.ParseUint(strings.TrimPrefix(mode, "0o"), 8, 32); err == nil {
		mode = fmt.Sprintf("%04o", n)
	} else {
		mode = "0644"
	}
	b[path.Clean(p)] = node.BaselineFile{
		Path:   path.Clean(p),
		SHA256: hex.EncodeToString(sum[:]),
		Owner:  cmp.Or(user, "root") + ":" + cmp.Or(group, "root"),
		Mode:   mode,
	}
}

func (b baseline) sorted() *node.Baseline {
	out := &node.Baseline{Files: []node.BaselineFile{}}
	for _, p := range slices.Sorted(maps.Keys(b)) {
		out.Files = append(out.Files, b[p])
	}
	return out
}
