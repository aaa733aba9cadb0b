package controlplane

import (
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// leavings is where kubeadm copies what was before each of its runs: manifests, and all of etcd's data. It never takes them away.
	leavings = "/etc/kubernetes/tmp"
	// keptLeavings is how many of each kind stay.
	keptLeavings = 2
)

// leaving matches the directories that kubeadm makes there: what for, and when.
var leaving = regexp.MustCompile(`^(kubeadm-[a-z-]+)-[0-9]{4}(-[0-9]{2}){5}$`)

// Tidy removes what earlier runs of kubeadm have left on the node, but for the newest of each kind and for what is newer than a time, that
// of the run under way: updates in place would fill the disk with it. Snapshots of etcd that were interrupted go too. What can't be removed
// only takes room, so that is no error.
func (k *Kind) Tidy(before time.Time) {
	for _, p := range slices.Concat(k.surplus(before), k.interrupted()) {
		_ = k.host.Disk.RemoveAll(p)
	}
}

// surplus returns what of kubeadm's leavings Tidy removes.
func (k *Kind) surplus(before time.Time) (paths []string) {
	dir, err := k.host.Resolve(leavings)
	if err != nil {
		return nil
	}
	entries, err := k.host.ReadDir(leavings) // in the order of their names, and so of their times
	if err != nil {
		return nil
	}
	slices.Reverse(entries)
	seen := map[string]int{}
	for _, e := range entries {
		m := leaving.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() {
			continue
		}
		seen[m[1]]++
		if seen[m[1]] > keptLeavings && e.ModTime().Before(before) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// interrupted returns what snapshots of etcd have left that were not finished.
func (k *Kind) interrupted() (paths []string) {
	entries, err := k.host.Disk.ReadDir(k.snapshotDir())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Mode().IsRegular() && host.TempForm.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(k.snapshotDir(), e.Name()))
		}
	}
	return paths
}
