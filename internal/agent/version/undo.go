package version

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/agent/kind"
)

// Undo implements kind.Kind. The kubelet goes back to the version that was installed, with its configuration, and with it kubectl and
// kubeadm.
//
// The manifests of a control plane are not taken back once kubeadm has made them all: the cluster's configuration says the new version
// already, the other control-plane nodes may run it, etcd must not go back, and an API server that is newer than the kubelet is what
// Kubernetes supports. kubeadm stays with them, since an older one does not manage a newer control plane. Manifests of which kubeadm has
// made some only, because it was killed, are put back, but for etcd's, as kubeadm does itself.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, err := readBefore(c)
	if err != nil {
		return err
	}
	finished, podsErr := k.podsBack(ctx, b, c.Desired.Version.Kubernetes)
	restart, err := k.programsBack(ctx, b, finished)
	if err = errors.Join(podsErr, err); err != nil || !restart {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	if _, err := k.awaitKubelet(ctx, b.Kubelet); err != nil || b.Pods == nil {
		return err
	}
	return k.awaitPods(ctx, *b.Pods)
}

// programsBack puts back the kubelet's files and the programs, and says whether the kubelet has to be restarted for that.
func (k *Kind) programsBack(ctx context.Context, b before, finished bool) (restart bool, err error) {
	if err := k.filesBack(b); err != nil {
		return false, err
	}
	if !finished {
		if err := k.kubeadmBack(ctx, b); err != nil {
			return false, err
		}
	}
	return k.kubeletBack(ctx, b)
}

// podsBack says whether the manifests of a control plane are all of a version. Where not, it puts them back as they were.
func (k *Kind) podsBack(ctx context.Context, b before, version string) (finished bool, err error) {
	if b.Pods == nil {
		return false, nil
	}
	if err := k.pods.Heal(ctx, *b.Pods); err != nil {
		return false, err
	}
	p, err := k.pods.Pods()
	if err != nil {
		return false, err
	}
	if p != nil && len((&shown{pods: p}).podsDiffer(version)) == 0 {
		return true, nil
	}
	return false, k.pods.PutBack(ctx, *b.Pods)
}

// filesBack writes the kubelet's files as they were.
func (k *Kind) filesBack(b before) error {
	for _, p := range kubeletFiles {
		f, ok := b.Files[p]
		if !ok {
			continue
		}
		data, state, err := k.host.ReadFile(p)
		if err == nil && string(data) == string(f.Data) && state == f.State {
			continue
		}
		if err := k.host.WriteFile(p, f.Data, f.State); err != nil {
			return err
		}
	}
	return nil
}

// kubeadmBack installs the old kubeadm, if it was of the same release as the kubelet: no other release is kept for going back.
func (k *Kind) kubeadmBack(ctx context.Context, b before) error {
	if b.Kubeadm != b.Kubelet || k.installedKubeadm(ctx) == b.Kubeadm {
		return nil
	}
	_, err := k.releases.Install(ctx, b.Kubelet, "kubeadm")
	return err
}

// kubeletBack installs the old kubelet, and says whether it has to be restarted: if another one was installed, or if the kubelet was
// restarted since, which may have been a new one that did not come up.
func (k *Kind) kubeletBack(ctx context.Context, b before) (restart bool, err error) {
	another := k.installedKubelet(ctx) != b.Kubelet
	install := another
	if !install {
		// The old programs can be merged while the next boot would merge others. Installing then puts that right, and does nothing twice.
		old, err := k.releases.Find(b.Kubelet)
		if err != nil {
			return false, err
		}
		install = old != nil && old.Extension
	}
	if install {
		// There is nobody to tell what went on beside it.
		if _, err := k.releases.Install(ctx, b.Kubelet, "kubelet", "kubectl"); err != nil || another {
			return another, err
		}
	}
	unit, err := k.host.Units.Show(ctx, kubeletUnit)
	return unit.InvocationID != b.Invocation, err
}
