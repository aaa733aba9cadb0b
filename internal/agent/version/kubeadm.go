package version

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// addonPhase matches the line of kubeadm's help that names the phase.
var addonPhase = regexp.MustCompile(`(?m)^\s*addon\s`)

// upgrade is what kubeadm is told to do on a control plane beside bringing the version.
type upgrade struct {
	// etcd has it make etcd's manifest again, which restarts the member even if the manifest stays the same.
	etcd bool
	// renew has it renew certificates, that of etcd's too.
	renew bool
	// aged is a certificate for which that is done.
	aged string
}

// upgradeOf decides what kubeadm is told. It would renew certificates with each upgrade, and restart etcd for that, which takes about a
// minute and a member of etcd: here they are renewed when one of them has less than half of its lifetime left, so that a year's are
// renewed within half a year of their end by any update. etcd is involved for that, or if its image is another one. Without a kubeadm to
// ask for the image it is taken to be.
func (k *Kind) upgradeOf(ctx context.Context, p *controlplane.Pods, config *controlplane.Configuration, kubeadm, version string) (upgrade, error) {
	aged, err := k.aged(p.PKI())
	if err != nil {
		return upgrade{}, err
	}
	u := upgrade{aged: aged, renew: aged != ""}
	if !p.Etcd() || !config.LocalEtcd() {
		return u, nil
	}
	if u.renew || kubeadm == "" {
		u.etcd = true
		return u, nil
	}
	tag, err := k.etcdTag(ctx, kubeadm, version)
	if err != nil {
		return upgrade{}, err
	}
	u.etcd = !config.EtcdStays(p, tag)
	return u, nil
}

// etcdTag asks a kubeadm for the tag of etcd's image that goes with a version.
func (k *Kind) etcdTag(ctx context.Context, kubeadm, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	out, err := k.host.RunTelling(ctx, host.Command{Name: "kubeadm", At: kubeadm, Args: []string{"config", "images", "list", "--kubernetes-version", version}})
	if err != nil {
		return "", fmt.Errorf("kubeadm does not say which images go with Kubernetes %s: %w", version, err)
	}
	for image := range strings.Lines(string(out)) {
		name, tag, ok := strings.Cut(path.Base(strings.TrimSpace(image)), ":")
		if ok && name == "etcd" {
			return tag, nil
		}
	}
	return "", fmt.Errorf("kubeadm names no image of etcd that goes with Kubernetes %s", version)
}

// kubeadm has the installed kubeadm bring the node to the version, all but its programs. The cluster's addons are left out: those are
// Cluster API's control plane provider's.
func (k *Kind) kubeadm(ctx context.Context, b before, want *node.Version) (note string, err error) {
	args, env := []string{"upgrade", "node"}, []string(nil)
	p, err := k.pods.Pods()
	if err != nil {
		return "", err
	}
	u := upgrade{}
	if p != nil {
		if u, env, note, err = k.prepare(ctx, p, want.Kubernetes); err != nil {
			return "", err
		}
	}
	args = append(args, fmt.Sprintf("--etcd-upgrade=%t", u.etcd), fmt.Sprintf("--certificate-renewal=%t", u.renew))
	if want.PatchesDirectory != "" {
		args = append(args, "--patches="+want.PatchesDirectory)
	}
	if len(want.IgnorePreflightErrors) > 0 {
		args = append(args, "--ignore-preflight-errors="+strings.Join(want.IgnorePreflightErrors, ","))
	}
	help, err := k.host.Run(ctx, host.Command{Name: "kubeadm", Args: []string{"upgrade", "node", "--help"}})
	if err != nil {
		return "", err
	}
	if addonPhase.Match(help) {
		args = append(args, "--skip-phases=addon")
	}
	if _, err := k.host.RunTelling(ctx, host.Command{Name: "kubeadm", Args: args, Env: env}); err != nil {
		return "", k.failed(b, want.Kubernetes, err)
	}
	return note, k.made(want.Kubernetes)
}

// prepare sees to it that kubeadm can change a control plane.
func (k *Kind) prepare(ctx context.Context, p *controlplane.Pods, version string) (u upgrade, env []string, note string, err error) {
	config, err := k.pods.Configuration(ctx)
	if err != nil {
		return upgrade{}, nil, "", err
	}
	if err := config.CheckVersion(version); err != nil {
		return upgrade{}, nil, "", err
	}
	if u, err = k.upgradeOf(ctx, p, config, k.host.Program("kubeadm"), version); err != nil {
		return upgrade{}, nil, "", err
	}
	if config.LocalEtcd() {
		if note, err = k.secure(ctx, p, u); err != nil {
			return upgrade{}, nil, "", err
		}
	}
	if u.renew {
		note = joined(note, fmt.Sprintf("certificates were renewed: %s had less than half of its lifetime left", u.aged))
	}
	return u, p.Proxies(config), note, nil
}

// bearable returns an error unless etcd bears the upgrade of a node. Also where its member is left alone, the node's API server and kubelet
// are restarted, and in the middle of that is no time to learn that another member is out.
func (u upgrade) bearable(ctx context.Context, p *controlplane.Pods) error {
	if u.etcd {
		return p.Spare(ctx)
	}
	return p.Steady(ctx)
}

// secure proves that etcd bears the upgrade, and keeps a snapshot. A member may be on its way up again when a change is taken up after a
// boot, so it is given a while: that of this node by Heal, and the others here.
func (k *Kind) secure(ctx context.Context, p *controlplane.Pods, u upgrade) (note string, err error) {
	patient, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	if err := staticpod.Until(patient, k.host.Clock, func() error { return u.bearable(patient, p) }); err != nil {
		return "", err
	}
	return p.Snapshot(ctx, u.etcd)
}

// failed says what kubeadm's failure has left. On a control plane it goes back by itself when a static pod does not come up.
func (k *Kind) failed(b before, version string, err error) error {
	left := ""
	if b.Pods != nil {
		left = "; " + k.pods.Left(*b.Pods)
	}
	return fmt.Errorf("kubeadm could not bring the node to Kubernetes %s: %s%s", version, host.Redact(err.Error()), left)
}

// made returns an error unless kubeadm has made all manifests for a version.
func (k *Kind) made(version string) error {
	p, err := k.pods.Pods()
	if err != nil {
		return err
	}
	if what := (&shown{pods: p}).podsDiffer(version); len(what) > 0 {
		return errors.New("kubeadm has ended well, but the static pods are not of Kubernetes " + version + ": " + strings.Join(what, ", "))
	}
	return nil
}
