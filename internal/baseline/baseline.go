// Package baseline reads from bootstrap data what it laid down on a machine: files, accounts, time servers and what kubeadm was told.
// Changes that were made on the node since are told from what Cluster API asks for by it.
package baseline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

// Bootstrap is what a machine was made with. What is nil is not known.
type Bootstrap struct {
	Baseline *node.Baseline
	// Registration is what its Node was registered with.
	Registration *kubeadm.Registration
}

// Read returns what the Machine's bootstrap data laid down, as far as that is still known. The reader is not a cache: the data is in a
// Secret.
func Read(ctx context.Context, live client.Reader, machine *clusterv1.Machine) (Bootstrap, error) {
	name := machine.Spec.Bootstrap.DataSecretName
	if name == nil {
		return Bootstrap{}, nil
	}
	var secret corev1.Secret
	err := live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: *name}, &secret)
	if apierrors.IsNotFound(err) {
		return Bootstrap{}, nil
	}
	if err != nil {
		return Bootstrap{}, fmt.Errorf("read the bootstrap data: %w", err)
	}
	b, err := Parse(string(secret.Data["format"]), secret.Data["value"])
	if err != nil {
		return Bootstrap{}, fmt.Errorf("read the bootstrap data in Secret %s: %w", *name, err)
	}
	return b, nil
}

// Parse reads bootstrap data. Its errors contain nothing of the data, in which there are keys and tokens.
func Parse(format string, data []byte) (Bootstrap, error) {
	b := newCollected()
	var err error
	if format == "ignition" {
		err = b.readIgnition(data)
	} else {
		err = b.readCloudConfig(data)
	}
	if err != nil {
		return Bootstrap{}, err
	}
	return b.result(), nil
}

// collected is what bootstrap data says. Of two files with the same path the later one counts, as it does for cloud-init,
// which writes one after the other; and so does the later one of two users.
type collected struct {
	files   map[string]node.BaselineFile
	users   map[string]node.User
	ntp     *node.NTP
	kubeadm kubeadmFile
}

func newCollected() *collected {
	return &collected{files: map[string]node.BaselineFile{}, users: map[string]node.User{}}
}

// add takes a file into the baseline, with cloud-init's defaults.
func (b *collected) add(p string, content []byte, owner, mode string) {
	sum := sha256.Sum256(content)
	user, group, _ := strings.Cut(owner, ":")
	if n, err := strconv.ParseUint(strings.TrimPrefix(mode, "0o"), 8, 32); err == nil {
		mode = fmt.Sprintf("%04o", n)
	} else {
		mode = "0644"
	}
	p = path.Clean(p)
	b.files[p] = node.BaselineFile{
		Path:   p,
		SHA256: hex.EncodeToString(sum[:]),
		Owner:  cmp.Or(user, "root") + ":" + cmp.Or(group, "root"),
		Mode:   mode,
	}
	if slices.Contains(kubeadmPaths, p) {
		b.kubeadm = parseKubeadm(content)
	}
}

// result returns all of it, in an order that is always the same.
func (b *collected) result() Bootstrap {
	out := node.Baseline{Files: []node.BaselineFile{}}
	for _, p := range slices.Sorted(maps.Keys(b.files)) {
		out.Files = append(out.Files, b.files[p])
	}
	for _, name := range slices.Sorted(maps.Keys(b.users)) {
		user := b.users[name]
		out.Resources = append(out.Resources, node.Resource{User: &user})
	}
	if b.ntp != nil {
		out.Resources = append(out.Resources, node.Resource{NTP: b.ntp})
	}
	made := Bootstrap{Baseline: &out}
	if o := b.kubeadm.registration; o != nil {
		r := o.Registration()
		made.Registration = &r
		out.Resources = append(out.Resources, node.Resource{Kubelet: &node.Kubelet{ExtraArgs: r.Args}},
			node.Resource{KubeletConfig: &node.KubeletConfig{PatchesDirectory: b.kubeadm.patches}})
	}
	if c := b.kubeadm.staticPods; c != nil {
		out.Resources = append(out.Resources, node.Resource{ControlPlane: c})
	}
	return made
}
