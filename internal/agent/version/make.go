package version

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// Make implements kind.Kind. What was done before it was interrupted is seen on the node: a kubelet of the version that runs, beside static
// pods of it, was restarted after all else. Until then kubeadm is called again, which does nothing twice.
func (k *Kind) Make(ctx context.Context, c kind.Change) (note string, err error) {
	b, err := readBefore(c)
	if err != nil {
		return "", err
	}
	want := c.Desired.Version
	if b.Pods != nil {
		b.Pods.Again = c.Again
		if err := k.pods.Heal(ctx, *b.Pods); err != nil {
			return "", err
		}
		k.pods.Tidy(b.Pods.At) // each attempt that fails leaves more
	}
	s, err := k.look(ctx)
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", errors.New("the node has no kubelet any more that kubeadm has set up")
	}
	if !s.running || len(s.differs(want.Kubernetes)) > 0 {
		if note, err = k.bring(ctx, b, s, want); err != nil {
			return "", err
		}
	}
	health, err := k.awaitKubelet(ctx, want.Kubernetes)
	if err != nil {
		return "", err
	}
	if b.Pods == nil {
		return joined(note, health), nil
	}
	k.pods.Tidy(b.Pods.At)
	return joined(note, health), k.awaitPods(ctx, *b.Pods)
}

// bring does the steps: kubeadm, what it does, the other programs, and the restart.
func (k *Kind) bring(ctx context.Context, b before, s *shown, want *node.Version) (note string, err error) {
	of, err := k.releases.Install(ctx, want.Kubernetes, "kubeadm")
	if err != nil {
		return "", err
	}
	if err := k.endpointBack(b); err != nil {
		return "", err
	}
	done, err := k.kubeadm(ctx, b, want)
	if err != nil {
		return "", err
	}
	if b.Pods != nil && s.running && s.kubelet != want.Kubernetes {
		if err := k.replaced(ctx, *b.Pods); err != nil {
			return "", err
		}
	}
	rest, err := k.releases.Install(ctx, want.Kubernetes, "kubelet", "kubectl")
	if err != nil {
		return "", err
	}
	return joined(done, of, rest), k.restart(ctx)
}

// replaced waits until the kubelet runs the new static pods. It is the old kubelet yet, so that the hashes of manifests can be compared: a
// kubelet of another version can have other hashes for the same manifests.
func (k *Kind) replaced(ctx context.Context, b controlplane.Saved) error {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	return staticpod.Await(ctx, k.host, b.Pods)
}

// awaitPods waits until the control plane of the node works under the kubelet that runs now. Whatever its hashes are, each pod that was ready
// has to be.
func (k *Kind) awaitPods(ctx context.Context, b controlplane.Saved) error {
	b.Pods = b.Pods.Unhashed()
	return k.pods.Await(ctx, b)
}
