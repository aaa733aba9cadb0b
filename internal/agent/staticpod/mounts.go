package staticpod

import (
	"context"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// ContainerStatus is what the kubelet says of a container.
type ContainerStatus struct {
	Name string `json:"name"`
	// ContainerID is the runtime's ID after the runtime's name: containerd://ID.
	ContainerID string `json:"containerID"`
	Ready       bool   `json:"ready"`
}

// Mirrors returns the node's name, and the pods that its kubelet runs from files as the API server knows them, by namespace and name.
func Mirrors(ctx context.Context, r host.Root) (node string, pods map[string]*Pod, err error) {
	return mirrors(ctx, r)
}

// NameOn returns the name of the manifest's pod at the API server, with the namespace, on a node.
func (m Manifest) NameOn(node string) string { return m.on(node) }

// Mounting returns the names of the containers that see one of the paths of the node: by a volume that is the path, is above it, or below.
func (m Manifest) Mounting(r host.Root, paths ...string) []string {
	volumes := map[string]bool{}
	for _, v := range m.Pod.Spec.Volumes {
		if v.HostPath != nil && slices.ContainsFunc(paths, func(p string) bool { return Overlap(r, p, v.HostPath.Path) }) {
			volumes[v.Name] = true
		}
	}
	var names []string
	for _, c := range m.Pod.Spec.Containers {
		for _, mount := range c.VolumeMounts {
			if volumes[mount.Name] && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// Overlap reports whether a path of the node is another one, is above it, or below, by their names or by what links in them lead to.
func Overlap(r host.Root, a, b string) bool {
	if related(a, b) {
		return true
	}
	x, errX := r.Resolve(a)
	y, errY := r.Resolve(b)
	return errX == nil && errY == nil && related(x, y)
}

func related(a, b string) bool {
	a, b = strings.TrimSuffix(a, "/")+"/", strings.TrimSuffix(b, "/")+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}
