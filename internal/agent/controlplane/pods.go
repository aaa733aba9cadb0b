package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// Components are the static pods that have the version of Kubernetes for their image's tag.
var Components = []string{apiServer, controllerManager, scheduler}

// TagOf returns the tag of the images of a version: registries take no plus sign.
func TagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// Pods are the static pods of a control-plane node as their manifests are now, for what has kubeadm change them beside Kind: another
// version of Kubernetes.
type Pods struct {
	kind  *Kind
	shown shown
}

// Pods returns those of the node, or nil if it is not a control plane of kubeadm's.
func (k *Kind) Pods() (*Pods, error) {
	s, err := k.look()
	if err != nil || s.manifests == nil {
		return nil, err
	}
	return &Pods{kind: k, shown: s}, nil
}

// Tag returns that of a component's image, or "" if the component has no manifest.
func (p *Pods) Tag(name string) string {
	_, tag := p.image(name)
	return tag
}

func (p *Pods) image(name string) (repository, tag string) {
	m := p.shown.manifests[name]
	if m == nil {
		return "", ""
	}
	repository, tag = splitImage(container(m, name).Image)
	return strings.TrimSuffix(repository, "/"+name), tag
}

// Etcd reports whether the node runs a member of etcd.
func (p *Pods) Etcd() bool { return p.shown.manifests[etcdMember] != nil }

// Spare returns an error unless etcd can do without the member of this node for a while.
func (p *Pods) Spare(ctx context.Context) error {
	member, err := p.kind.member(p.shown)
	if err != nil {
		return err
	}
	return member.Spare(ctx)
}

// Steady returns an error unless etcd is as well as a cluster of its size can be, which is for changes that leave the member of this node
// alone.
func (p *Pods) Steady(ctx context.Context) error {
	member, err := p.kind.member(p.shown)
	if err != nil {
		return err
	}
	return member.Steady(ctx)
}

// Room returns an error unless there is room on the node for a snapshot of etcd and, if etcd is upgraded, for the copy of its data that
// kubeadm makes then.
func (p *Pods) Room(ctx context.Context, upgraded bool) error {
	return p.kind.room(ctx, p.shown, upgraded)
}

// Snapshot keeps one of etcd on the node, if there is room as Room says. The note says where.
func (p *Pods) Snapshot(ctx context.Context, upgraded bool) (note string, err error) {
	return p.kind.snapshot(ctx, p.shown, upgraded)
}

// PKI is the directory of the certificates, by that of the API server.
func (p *Pods) PKI() string { return path.Dir(p.shown.certificates[0].certFile) }

// Proxies returns the variables of proxies that kubeadm has to have in its environment, so that the manifests keep them.
func (p *Pods) Proxies(c *Configuration) []string {
	return proxies(p.shown, c.config.APIServer.ExtraEnvs)
}

// Save reads the manifests, and notes which pods run, for Heal, Left, PutBack and Await.
func (p *Pods) Save(ctx context.Context) (Saved, error) {
	b, err := p.kind.remember(ctx, p.shown)
	return b.manifests(), err
}

// Heal puts back a manifest that kubeadm has moved away when it was killed, as it was, and waits for etcd where a change is made again.
func (k *Kind) Heal(ctx context.Context, b Saved) error { return k.heal(ctx, b) }

// Left says, for people, whether kubeadm has put the manifests back after a failure.
func (k *Kind) Left(b Saved) string { return k.left(b) }

// PutBack writes the manifests that are not as they were, and waits until the node runs them. That of etcd stays as it is, as it does when
// kubeadm goes back: its data may be of the newer version.
func (k *Kind) PutBack(ctx context.Context, b Saved) error {
	for _, p := range b.paths() {
		if path.Dir(p) != staticpod.Dir || p == manifestPath(etcdMember) {
			continue
		}
		if err := k.host.PutBack(p, b.Files[p]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	return staticpod.Await(ctx, k.host, b.Pods)
}

// Await waits until the node runs what its manifests say, its API server is ready, and its member of etcd is healthy.
func (k *Kind) Await(ctx context.Context, b Saved) error {
	if err := k.await(ctx, b, nil); err != nil {
		return err
	}
	p, err := k.Pods()
	if err != nil || p == nil || !p.Etcd() {
		return err
	}
	return k.awaitEtcd(ctx)
}

// Configuration is the cluster's, by which kubeadm makes manifests.
type Configuration struct{ config *clusterConfiguration }

// Configuration reads that of the cluster. It asks until the API server answers, for half a minute.
func (k *Kind) Configuration(ctx context.Context) (*Configuration, error) {
	c, err := k.configuration(ctx)
	if err != nil {
		return nil, err
	}
	return &Configuration{c}, nil
}

// Version is the version of Kubernetes that kubeadm brings.
func (c *Configuration) Version() string { return c.config.KubernetesVersion }

// LocalEtcd reports whether kubeadm runs etcd on the control-plane nodes.
func (c *Configuration) LocalEtcd() bool { return c.config.Etcd.Local != nil }

// EtcdStays reports whether kubeadm would keep the image of a node's etcd, where standardTag is the one that it takes if the configuration
// names none.
func (c *Configuration) EtcdStays(p *Pods, standardTag string) bool {
	local := c.config.Etcd.Local
	if local == nil {
		return true
	}
	repository, tag := p.image(etcdMember)
	wanted := cmp.Or(local.ImageRepository, c.config.ImageRepository, repository)
	return wanted == repository && cmp.Or(local.ImageTag, standardTag) == tag
}

// CheckVersion returns an error unless kubeadm would bring a version.
func (c *Configuration) CheckVersion(version string) error {
	if c.Version() == version {
		return nil
	}
	return fmt.Errorf("kubeadm-config in kube-system says Kubernetes %s, not %s, and kubeadm goes by it; Cluster API's control plane provider "+
		"writes it before it has machines updated, and has not done so yet", c.Version(), version)
}
