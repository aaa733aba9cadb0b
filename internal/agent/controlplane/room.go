package controlplane

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// reserve is what must be left of a file system, in bytes.
const reserve = 64 << 20

// need is the room that something takes on the node.
type need struct {
	// what it is, and the node's directory that it goes to, for people.
	what, where string
	// dir is that directory.
	dir string
	// bytes are what it takes, and freed what Tidy removes there before.
	bytes, freed uint64
}

// snapshotDir is where snapshots of etcd are kept.
func (k *Kind) snapshotDir() string { return filepath.Join(k.host.Private, path.Base(snapshots)) }

// room returns an error unless there is room for a snapshot of etcd and, where kubeadm upgrades etcd, for the copy of all its data that
// kubeadm makes before (performEtcdStaticPodUpgrade in its phases/upgrade/staticpods.go). It removes nothing, but what Tidy is going to
// remove counts as free.
func (k *Kind) room(ctx context.Context, s shown, upgraded bool) error {
	member, err := k.member(s)
	if err != nil {
		return err
	}
	size, err := member.Size(ctx)
	if err != nil {
		return err
	}
	to, err := k.host.Resolve(leavings)
	if err != nil {
		return err
	}
	copied := uint64(0)
	if upgraded {
		if copied, err = k.etcdData(s); err != nil {
			return err
		}
	}
	return k.fit(
		need{what: "a snapshot of etcd", where: snapshots, dir: k.snapshotDir(), bytes: size, freed: k.sizes(k.interrupted())},
		need{what: "kubeadm's copy of etcd's data", where: leavings, dir: to, bytes: copied, freed: k.sizes(k.surplus(k.host.Clock.Now()))},
	)
}

// etcdData returns how many bytes of data the member of this node has.
func (k *Kind) etcdData(s shown) (uint64, error) {
	return k.host.Size(s.argument(etcdMember, "data-dir", "/var/lib/etcd"))
}

// fit returns an error unless each file system has room for all that goes to it, and a reserve.
func (k *Kind) fit(needs ...need) error {
	spaces := make([]host.Space, len(needs))
	for i, n := range needs {
		var err error
		if spaces[i], err = k.space(n.dir); err != nil {
			return fmt.Errorf("how much room there is in %s is not known: %w", n.where, err)
		}
	}
	for i := range needs {
		var what []string
		take, free := uint64(reserve), spaces[i].Free
		for j, n := range needs {
			if spaces[j].Device != spaces[i].Device {
				continue
			}
			take, free = take+n.bytes, free+n.freed
			if n.bytes > 0 {
				what = append(what, n.what+" in "+n.where)
			}
		}
		if len(what) > 0 && free < take {
			const mebi = 1 << 20
			return fmt.Errorf("there is no room on the node for %s: that takes %d MiB, of which %d stay free, and %d MiB are free there; "+
				"make room, or compact and defragment etcd", strings.Join(what, " and "), (take+mebi-1)/mebi, reserve/mebi, free/mebi)
		}
	}
	return nil
}

// sizes returns how many bytes files and directories have together. What can't be read counts as nothing.
func (k *Kind) sizes(paths []string) (total uint64) {
	for _, p := range paths {
		if n, err := k.host.Disk.Size(p); err == nil {
			total += n
		}
	}
	return total
}
