package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/agent/etcd"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// snapshots is where those of etcd are kept on the node.
	snapshots = "/var/lib/refit/etcd"
	// podPatience is how long static pods may take to be back. kubeadm gives each as long (UpgradeManifests).
	podPatience = 5 * time.Minute
	// rootless is kubeadm's feature gate that changes all manifests, etcd's too.
	rootless = "RootlessControlPlane"
)

// Make implements kind.Kind.
func (k *Kind) Make(ctx context.Context, c kind.Change) (note string, err error) {
	b, err := readBefore(c)
	if err != nil {
		return "", err
	}
	want, was := c.Desired.ControlPlane, (*node.ControlPlane)(nil)
	if c.Was != nil {
		was = c.Was.ControlPlane
	}
	if err := k.heal(b); err != nil {
		return "", err
	}
	if note, err = k.bring(ctx, b, want, was); err != nil {
		return "", err
	}
	return note, k.await(ctx, b, want)
}

// bring has kubeadm make what is not as it is wanted.
func (k *Kind) bring(ctx context.Context, b before, want, was *node.ControlPlane) (note string, err error) {
	s, err := k.lookAgain()
	if err != nil {
		return "", err
	}
	d, err := k.compare(s, want, was)
	if err != nil {
		return "", err
	}
	config, err := k.configuration(ctx)
	if err != nil {
		return "", err
	}
	if err := config.check(s, want, was); err != nil {
		return "", err
	}
	if len(d.manifests) > 0 || was != nil && !same(withoutSANs(was), withoutSANs(want)) {
		if note, err = k.regenerate(ctx, s, d, b, want, was); err != nil {
			return "", err
		}
	}
	if d.cert {
		err = k.sign(ctx, s, config, want)
	}
	return note, err
}

// lookAgain is look for a node that was a control plane when the change was planned.
func (k *Kind) lookAgain() (shown, error) {
	s, err := k.look()
	if err == nil && s.manifests == nil {
		err = fmt.Errorf("%s is missing", manifestPath(apiServer))
	}
	return s, err
}

// heal puts back a manifest that is missing: kubeadm moves the old one away before it moves the new one in, and may have been killed
// between.
func (k *Kind) heal(b before) error {
	for _, p := range b.paths() {
		if path.Dir(p) != staticpod.Dir {
			continue
		}
		if now, err := k.host.Observe(p); err == nil && !now.Exists {
			if err := k.putBack(p, b.Files[p]); err != nil {
				return err
			}
		}
	}
	return nil
}

func withoutSANs(c *node.ControlPlane) *node.ControlPlane {
	p := plain(c)
	p.CertSANs = nil
	return &p
}

// etcdInvolved says whether kubeadm has to make etcd's manifest anew.
func (k *Kind) etcdInvolved(d differences, want, was *node.ControlPlane) (bool, error) {
	if d.etcd || was == nil || want.Etcd == nil {
		return d.etcd, nil
	}
	if was.FeatureGates[rootless] != want.FeatureGates[rootless] {
		return true, nil
	}
	for _, directory := range []string{want.PatchesDirectory, was.PatchesDirectory} {
		patched, err := k.patched(directory)
		if err != nil {
			return false, err
		}
		if patched[etcdMember] && (was.PatchesDirectory != want.PatchesDirectory || !reflect.DeepEqual(plain(was).Etcd, plain(want).Etcd)) {
			return true, nil
		}
	}
	return false, nil
}

// regenerate has kubeadm make the manifests anew. Certificates are not renewed with it: that is no part of the specs, and would
// restart etcd even when its manifest stays the same.
func (k *Kind) regenerate(ctx context.Context, s shown, d differences, b before, want, was *node.ControlPlane) (note string, err error) {
	involved, err := k.etcdInvolved(d, want, was)
	if err != nil {
		return "", err
	}
	if involved {
		if note, err = k.secure(ctx, s); err != nil {
			return "", err
		}
	}
	args := []string{"upgrade", "node", "phase", "control-plane", fmt.Sprintf("--etcd-upgrade=%t", involved), "--certificate-renewal=false"}
	if want.PatchesDirectory != "" {
		args = append(args, "--patches="+want.PatchesDirectory)
	}
	_, err = k.host.RunTelling(ctx, host.Command{Name: "kubeadm", Args: args, Env: proxies(s, want, was)})
	if err != nil {
		return "", fmt.Errorf("kubeadm could not change the control plane: %w; %s", err, k.left(b))
	}
	return note, nil
}

// secure proves that etcd can do without this member for a while, and keeps a snapshot.
func (k *Kind) secure(ctx context.Context, s shown) (string, error) {
	member, err := k.member(s)
	if err != nil {
		return "", err
	}
	if err := member.Spare(ctx); err != nil {
		return "", err
	}
	data, err := k.host.Resolve(s.argument(etcdMember, "data-dir", "/var/lib/etcd"))
	if err != nil {
		return "", err
	}
	copied, err := etcd.Size(data) // kubeadm copies it to /etc/kubernetes/tmp
	if err != nil {
		return "", err
	}
	store := etcd.Store{Dir: filepath.Join(k.host.Private, path.Base(snapshots)), Disk: k.host.Disk, Free: k.free}
	file, err := store.Save(ctx, member, k.host.Clock.Now(), copied)
	if err != nil {
		return "", err
	}
	return "a snapshot of etcd is kept in " + path.Join(snapshots, filepath.Base(file)), nil
}

// member returns the etcd of this node.
func (k *Kind) member(s shown) (*etcd.Client, error) {
	if s.manifests[etcdMember] == nil {
		return nil, fmt.Errorf("%s is missing, so etcd does not run on this node", manifestPath(etcdMember))
	}
	endpoint := ""
	for u := range strings.SplitSeq(s.argument(etcdMember, "listen-client-urls", "https://127.0.0.1:2379"), ",") {
		if endpoint == "" || strings.Contains(u, "//127.0.0.1:") || strings.Contains(u, "//[::1]:") {
			endpoint = u
		}
	}
	dir := path.Dir(s.argument(etcdMember, "trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"))
	return etcd.Connect(k.host.Root, endpoint, dir)
}

// proxies returns the variables by which kubeadm was told of proxies when it made the node: it writes those of its environment into
// each manifest, and would leave them out now.
func proxies(s shown, want, was *node.ControlPlane) []string {
	var of []node.Env
	for _, c := range []*node.ControlPlane{want, was} {
		if c != nil {
			of = append(of, c.APIServer.ExtraEnvs...)
		}
	}
	var env []string
	for _, e := range container(s.manifests[apiServer], apiServer).Env {
		own := slices.ContainsFunc(of, func(other node.Env) bool { return other.Name == e.Name })
		if strings.HasSuffix(strings.ToLower(e.Name), "_proxy") && !own {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	return env
}

// left says how kubeadm has left the manifests after a failure.
func (k *Kind) left(b before) string {
	var other []string
	for _, p := range b.paths() {
		if same, err := k.asBefore(p, b.Files[p]); path.Dir(p) == staticpod.Dir && (err != nil || !same) {
			other = append(other, path.Base(p))
		}
	}
	if len(other) == 0 {
		return "the manifests are as they were, kubeadm has seen to that"
	}
	return "it has not put back " + strings.Join(other, ", ")
}

// await waits until the control plane of the node works, whatever action the rules say.
func (k *Kind) await(ctx context.Context, b before, want *node.ControlPlane) error {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	if err := staticpod.Await(ctx, k.host, b.Pods); err != nil {
		return err
	}
	s, err := k.lookAgain()
	if err != nil {
		return err
	}
	cluster, err := staticpod.Connect(k.host.Root, staticpod.AdminConfig)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(s.argument(apiServer, "advertise-address", "127.0.0.1"), s.argument(apiServer, "secure-port", "6443"))
	err = staticpod.Until(ctx, k.host.Clock, func() error {
		return errors.Join(cluster.At(address).Get(ctx, "/readyz", nil, nil), served(ctx, cluster, address, want))
	})
	if err != nil {
		return fmt.Errorf("%s of this node is not as it has to be: %w", apiServer, err)
	}
	return nil
}

// freeSpace returns how many bytes can be written below a directory.
func freeSpace(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(max(fs.Bsize, 0)), nil
}
