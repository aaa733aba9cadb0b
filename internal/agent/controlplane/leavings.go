package controlplane

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

const (
	// leavings is where kubeadm copies what was before each of its runs: manifests, and all of etcd's data. It never takes them away.
	leavings = "/etc/kubernetes/tmp"
	// keptLeavings is how many of each kind stay.
	keptLeavings = 2
)

// leaving matches the directories that kubeadm makes there: what for, and when.
var leaving = regexp.MustCompile(`^(kubeadm-[a-z-]+)-[0-9]{4}(-[0-9]{2}){5}$`)

// Tidy removes what earlier runs of kubeadm have left on the node, but for the newest of each kind: updates in place would fill the disk with
// it. What can't be removed only takes room, so that is no error.
func (k *Kind) Tidy() {
	dir, err := k.host.Resolve(leavings)
	if err != nil {
		return
	}
	entries, err := os.ReadDir(dir) // in the order of their names, and so of their times
	if err != nil {
		return
	}
	slices.Reverse(entries)
	seen := map[string]int{}
	for _, e := range entries {
		m := leaving.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() {
			continue
		}
		if seen[m[1]]++; seen[m[1]] > keptLeavings {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
