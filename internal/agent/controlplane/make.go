package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/kubeadmphase"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// snapshots is where those of etcd are kept on the node.
	snapshots = "/var/lib/refit/etcd"
	// podPatience is how long static pods may take to be back. kubeadm gives each as long (UpgradeManifests).
	podPatience = 5 * time.Minute
	// rootless is kubeadm's feature gate that changes all manifests, etcd's too.
	rootless = kubeadmphase.RootlessControlPlane
)

// Make implements kind.Kind.
func (k *Kind) Make(ctx context.Context, c kind.Change) (note string, err error) {
	b, err := readBefore(c)
	if err != nil {
		return "", err
	}
	if b, err = k.begin(ctx, c, b); err != nil {
		return "", err
	}
	want, was := c.Desired.ControlPlane, (*node.ControlPlane)(nil)
	if c.Was != nil {
		was = c.Was.ControlPlane
	}
	b.Again = c.Again
	if err := k.heal(ctx, b); err != nil {
		return "", err
	}
	k.Tidy(b.At) // each attempt that fails leaves more
	if note, err = k.bring(ctx, b, want, was); err != nil {
		return "", err
	}
	k.Tidy(b.At)
	return note, k.await(ctx, b, want)
}

// bring has kubeadm make what is not as it is wanted.
func (k *Kind) bring(ctx context.Context, b Saved, want, was *node.ControlPlane) (note string, err error) {
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
	if err := config.check(s, want, was, ""); err != nil {
		return "", err
	}
	stale, err := k.stale(b, d, want, was)
	if err != nil {
		return "", err
	}
	if stale {
		if note, err = k.regenerate(ctx, s, d, b, want, was); err != nil {
			return "", err
		}
	}
	for _, c := range d.certificates {
		if err := k.sign(ctx, s, c, config, want); err != nil {
			return "", err
		}
	}
	return note, nil
}

// stale reports whether kubeadm has to make manifests again. Where it has done so for another version of Kubernetes meanwhile, what they
// don't show is in them already, but for that of etcd, which is left as it is then unless its image is another one.
func (k *Kind) stale(b Saved, d differences, want, was *node.ControlPlane) (bool, error) {
	switch {
	case len(d.manifests) > 0:
		return true, nil
	case was == nil || same(withoutSANs(was), withoutSANs(want)):
		return false, nil
	case b.Remade:
		return k.etcdInvolved(d, want, was)
	default:
		return true, nil
	}
}

// lookAgain is look for a node that was a control plane when the change was planned.
func (k *Kind) lookAgain() (shown, error) {
	s, err := k.look()
	if err == nil && s.manifests == nil {
		err = fmt.Errorf("%s is missing", manifestPath(apiServer))
	}
	return s, err
}

func withoutSANs(c *node.ControlPlane) *node.ControlPlane {
	p := plain(c)
	p.CertSANs = nil
	if p.Etcd != nil {
		etcd := *p.Etcd
		etcd.ServerCertSANs, etcd.PeerCertSANs = nil, nil
		p.Etcd = &etcd
	}
	p = plain(&p)
	return &p
}

// etcdInvolved reports whether kubeadm has to make etcd's manifest again.
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
		if patched[etcdMember] && (was.PatchesDirectory != want.PatchesDirectory || !reflect.DeepEqual(withoutSANs(was).Etcd, withoutSANs(want).Etcd)) {
			return true, nil
		}
	}
	return false, nil
}

// regenerate has kubeadm make the manifests again. Certificates are not renewed with it: that is no part of the specs, and would
// restart etcd even when its manifest stays the same.
func (k *Kind) regenerate(ctx context.Context, s shown, d differences, b Saved, want, was *node.ControlPlane) (note string, err error) {
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
	_, err = k.host.RunTelling(ctx, host.Command{Name: "kubeadm", Args: args, Env: proxies(s, extraEnvs(want, was))})
	if err != nil {
		return "", fmt.Errorf("kubeadm could not change the control plane: %w; %s", err, k.left(b))
	}
	return note, nil
}

// extraEnvs returns those that the specs have, or had, the API server run with.
func extraEnvs(specs ...*node.ControlPlane) []node.Env {
	var all []node.Env
	for _, c := range specs {
		if c != nil {
			all = append(all, c.APIServer.ExtraEnvs...)
		}
	}
	return all
}

// proxies returns the variables by which kubeadm was told of proxies when it made the node: it writes those of its environment into
// each manifest, and would leave them out now. Those that the specs set are not of its environment.
func proxies(s shown, specs []node.Env) []string {
	var env []string
	for _, e := range container(s.manifests[apiServer], apiServer).Env {
		own := slices.ContainsFunc(specs, func(other node.Env) bool { return other.Name == e.Name })
		if strings.HasSuffix(strings.ToLower(e.Name), "_proxy") && !own {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	return env
}

// await waits until the control plane of the node works, whatever action the rules say.
func (k *Kind) await(ctx context.Context, b Saved, want *node.ControlPlane) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(b.Patience, podPatience))
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
	return k.awaitEtcdServes(ctx, s, want)
}
