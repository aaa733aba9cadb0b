package version

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
)

// Undo implements kind.Kind. The kubelet goes back to the version that was installed, with its configuration, and with it kubectl and
// kubeadm.
//
// The manifests of a control plane are not taken back once kubeadm has made them all: the cluster's configuration says the new version
// already, the other control-plane nodes may run it, etcd must not go back, and an API server that is newer than the kubelet is what
// Kubernetes supports. kubeadm stays with them, since an older one does not manage a newer control plane. Manifests of which kubeadm has
// made some only, because it was killed, are put back, but for etcd's, as kubeadm does itself.
//
// Locks of packages that do not come back are told at the end, when the kubelet is back, and are no failure: a node whose kubelet is down is
// worse, and the store puts them back when it is called next.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, err := readBefore(c)
	if err != nil {
		return err
	}
	finished, podsErr := k.podsBack(ctx, b, c.Desired.Version.Kubernetes)
	restart, locks, err := k.programsBack(ctx, b, c.Desired.Version.Kubernetes, finished)
	if err = errors.Join(podsErr, err); err == nil && restart {
		err = k.kubeletRuns(ctx, b)
	}
	if err == nil && locks != nil {
		return &kind.Remark{Err: fmt.Errorf("%w; it is tried again when a release is staged or installed next", locks)}
	}
	return errors.Join(err, locks)
}

// kubeletRuns restarts the kubelet, and waits until it and the control plane work.
func (k *Kind) kubeletRuns(ctx context.Context, b before) error {
	if err := k.restart(ctx); err != nil {
		return err
	}
	if _, err := k.awaitKubelet(ctx, b.Kubelet); err != nil || b.Pods == nil {
		return err
	}
	return k.awaitPods(ctx, *b.Pods)
}

// programsBack puts back the kubelet's files and the programs of a version, and reports whether the kubelet has to be restarted for that, and
// which locks of packages did not come back meanwhile.
func (k *Kind) programsBack(ctx context.Context, b before, version string, finished bool) (restart bool, locks, err error) {
	if err := k.filesBack(b); err != nil {
		return false, nil, err
	}
	old, err := k.releases.Find(b.Kubelet)
	if err != nil {
		return false, nil, err
	}
	if !finished {
		if locks, err = k.kubeadmBack(ctx, b, old); err != nil {
			return false, locks, err
		}
	}
	restart, unlocked, err := k.kubeletBack(ctx, b, old, version)
	return restart, errors.Join(locks, unlocked), err
}

// podsBack reports whether the manifests of a control plane are all of a version. Where not, it puts them back as they were.
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
		if err := k.host.PutBack(p, f); err != nil {
			return err
		}
	}
	return nil
}

// kubeadmBack installs the old kubeadm, if it was of the same release as the kubelet: no other release is kept for going back.
func (k *Kind) kubeadmBack(ctx context.Context, b before, old *release.Release) (locks, err error) {
	if b.Kubeadm != b.Kubelet || !tellsMore(old) && k.installedKubeadm(ctx) == b.Kubeadm {
		return nil, nil
	}
	return k.installBack(ctx, b, "kubeadm")
}

// kubeletBack installs the old kubelet, and reports whether it has to be restarted: if another one was installed, or if the kubelet was
// restarted since, which may have been a new one that did not come up.
func (k *Kind) kubeletBack(ctx context.Context, b before, old *release.Release, version string) (restart bool, locks, err error) {
	another := k.installedKubelet(ctx) != b.Kubelet
	switch {
	case another || tellsMore(old):
		locks, err = k.installBack(ctx, b, "kubelet", "kubectl")
	case old != nil && k.installedKubectl(ctx) == version: // dead between the two
		locks, err = k.installBack(ctx, b, "kubectl")
	}
	if err != nil || another {
		return another, locks, err
	}
	unit, err := k.host.Units.Show(ctx, kubeletUnit)
	return unit.InvocationID != b.Invocation, locks, err
}

// tellsMore reports whether the store knows more of a release than what its programs say: which packages are to be set up yet and which locks
// are to be put back, or what the next boot merges. Installing it then puts that right, and does nothing twice. Programs by themselves are
// there or not.
func tellsMore(old *release.Release) bool { return old != nil && (old.Packages || old.Extension) }

// installBack installs programs of the old release. Locks that did not come back are told beside other errors, since they hinder nothing.
func (k *Kind) installBack(ctx context.Context, b before, programs ...string) (locks, err error) {
	// There is nobody to tell what went on beside it.
	_, err = k.releases.Install(ctx, b.Kubelet, programs...)
	var unlocked *release.LocksError
	if errors.As(err, &unlocked) {
		return err, nil
	}
	return nil, err
}

// installedKubectl returns the version of the program, or "".
func (k *Kind) installedKubectl(ctx context.Context) string {
	return k.versionOf(ctx, host.Command{Name: "kubectl", Args: []string{"version", "--client"}})
}
