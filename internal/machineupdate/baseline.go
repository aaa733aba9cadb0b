package machineupdate

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

// bootstrapped is what a machine was made with. What is nil is not known.
type bootstrapped struct {
	baseline *node.Baseline
	// registration is what its Node was registered with.
	registration *kubeadm.Registration
}

// readBaseline returns what the machine's bootstrap data laid down, as far as that is still known.
func (r *Reconciler) readBaseline(ctx context.Context, machine *clusterv1.Machine) (bootstrapped, error) {
	name := machine.Spec.Bootstrap.DataSecretName
	if name == nil {
		return bootstrapped{}, nil
	}
	var secret corev1.Secret
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: *name}, &secret)
	if apierrors.IsNotFound(err) {
		return bootstrapped{}, nil
	}
	if err != nil {
		return bootstrapped{}, fmt.Errorf("read the bootstrap data: %w", err)
	}
	b, err := parseBaseline(string(secret.Data["format"]), secret.Data["value"])
	if err != nil {
		return bootstrapped{}, fmt.Errorf("read the bootstrap data in Secret %s: %w", *name, err)
	}
	return b, nil
}

// parseBaseline reads bootstrap data. Its errors contain nothing of the data, in which there are keys and tokens.
func parseBaseline(format string, data []byte) (bootstrapped, error) {
	b := newBaseline()
	var err error
	if format == "ignition" {
		err = b.readIgnition(data)
	} else {
		err = b.readCloudConfig(data)
	}
	if err != nil {
		return bootstrapped{}, err
	}
	return b.result(), nil
}

// baseline collects what bootstrap data says. Of two files with the same path the later one counts, as it does for cloud-init,
// which writes one after the other; and so does the later one of two users.
type baseline struct {
	files   map[string]node.BaselineFile
	users   map[string]node.User
	ntp     *node.NTP
	kubeadm kubeadmFile
}

func newBaseline() *baseline {
	return &baseline{files: map[string]node.BaselineFile{}, users: map[string]node.User{}}
}

// add takes a file into the baseline, with cloud-init's defaults.
func (b *baseline) add(p string, content []byte, owner, mode string) {
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
func (b *baseline) result() bootstrapped {
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
	made := bootstrapped{baseline: &out}
	if o := b.kubeadm.registration; o != nil {
		r := o.Registration()
		made.registration = &r
		out.Resources = append(out.Resources, node.Resource{Kubelet: &node.Kubelet{ExtraArgs: r.Args}})
	}
	if c := b.kubeadm.staticPods; c != nil {
		out.Resources = append(out.Resources, node.Resource{ControlPlane: c})
	}
	return made
}
