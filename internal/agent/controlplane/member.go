package controlplane

import (
	"context"
	"fmt"
	"path"
	"path/filepath"

	"github.com/capi-refit/refit/internal/agent/etcd"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// secure proves that etcd can do without this member for a while, and keeps a snapshot.
func (k *Kind) secure(ctx context.Context, s shown) (string, error) {
	member, err := k.member(s)
	if err != nil {
		return "", err
	}
	if err := member.Spare(ctx); err != nil {
		return "", err
	}
	return k.snapshot(ctx, s, true)
}

// snapshot keeps one of etcd on the node, if there is room for all that comes then.
func (k *Kind) snapshot(ctx context.Context, s shown, upgraded bool) (note string, err error) {
	member, err := k.member(s)
	if err != nil {
		return "", err
	}
	if err := k.room(ctx, s, upgraded); err != nil {
		return "", err
	}
	store := etcd.Store{Dir: k.snapshotDir(), Disk: k.host.Disk}
	file, err := store.Save(ctx, member, k.host.Clock.Now())
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
	dir := path.Dir(s.argument(etcdMember, "trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"))
	return etcd.Connect(k.host.Root, listens(s, "listen-client-urls"), dir)
}

// awaitEtcd waits until the etcd of this node is healthy.
func (k *Kind) awaitEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	err := staticpod.Until(ctx, k.host.Clock, func() error {
		s, err := k.lookAgain()
		if err != nil {
			return err
		}
		member, err := k.member(s)
		if err != nil {
			return err
		}
		return member.Healthy(ctx)
	})
	if err != nil {
		return fmt.Errorf("etcd of this node is not as it has to be: %w", err)
	}
	return nil
}
