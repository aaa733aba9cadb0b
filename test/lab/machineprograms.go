package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/capi-refit/refit/test/nodes/kubeadm"
)

// The versions of Kubernetes that kubeadm machines can have: two of one minor version, for updates from the one to the other, and one of
// the minor version before.
const (
	PreviousMinorMachineVersion = "v1.35.4"

	OlderMachineVersion = "v1.36.1"
	NewerMachineVersion = "v1.36.3"
)

// machineModules pin Kubernetes, by version.
var machineModules = map[string]string{
	PreviousMinorMachineVersion: "kubernetes-v1.35.4", OlderMachineVersion: "kubernetes-v1.36.1", NewerMachineVersion: "kubernetes",
}

// kubernetesPrograms are built again for each version, in this order; what takes long is compiled with the first.
var kubernetesPrograms = []struct{ name, cold string }{
	{"kube-apiserver", "4 minutes"}, {"kubeadm", "1 minute"}, {"kubelet", "2 minutes"}, {"kube-controller-manager", "1 minute"},
	{"kube-scheduler", "10 seconds"}, {"kube-proxy", "10 seconds"}, {"kubectl", "30 seconds"},
}

// machineSources are of programs that machines of all versions have.
var machineSources = map[string]source{
	"etcd": sources[Etcd],
	"pause": {module: rootModule, version: "v1", pkg: "./test/nodes/kubeadm/pause", cold: "1 second",
		files: []string{filepath.Join("test", "nodes", "kubeadm", "pause", "main.go")}},
	"coredns": {module: "coredns", version: "v1.14.2", pkg: ".", cold: "1 minute", files: []string{"main.go"}},
	"crictl":  {module: "crictl", version: "v1.36.0", pkg: "sigs.k8s.io/cri-tools/cmd/crictl", cold: "1 minute"},

	"containerd":              containerdSource("containerd", "2 minutes"),
	"containerd-shim-runc-v2": containerdSource("containerd-shim-runc-v2", "5 seconds"),
	"ctr":                     containerdSource("ctr", "10 seconds"),

	"ptp":        cniSource("main/ptp"),
	"loopback":   cniSource("main/loopback"),
	"host-local": cniSource("ipam/host-local"),
	"portmap":    cniSource("meta/portmap"),
}

// containerdSource leaves out the snapshotters that take cgo.
func containerdSource(program, cold string) source {
	return source{
		module: "containerd", version: "v2.3.7", pkg: "github.com/containerd/containerd/v2/cmd/" + program, cold: cold,
		tags: "no_btrfs no_devmapper no_zfs",
	}
}

func cniSource(plugin string) source {
	return source{
		module: "cni", version: "v1.9.1", pkg: "github.com/containernetworking/plugins/plugins/" + plugin, cold: "5 seconds",
	}
}

// machinePrograms are those of machines of a version, in the order in which they are built.
func machinePrograms(version string) []wanted {
	var all []wanted
	for _, name := range slices.Sorted(maps.Keys(machineSources)) {
		all = append(all, wanted{Program(name), machineSources[name]})
	}
	for _, p := range kubernetesPrograms {
		all = append(all, wanted{Program(p.name), kubernetesSource(p.name, machineModules[version], version, p.cold)})
	}
	return all
}

// buildMachinePrograms returns the programs of machines, by version.
func buildMachinePrograms(ctx context.Context, progress io.Writer, versions []string) (map[string]kubeadm.Programs, error) {
	var all []wanted
	for _, version := range versions {
		all = append(all, machinePrograms(version)...)
	}
	defer ahead(ctx, all)()
	byVersion := map[string]kubeadm.Programs{}
	for _, version := range versions {
		programs := kubeadm.Programs{}
		for _, w := range machinePrograms(version) {
			path, err := cached(ctx, progress, w.program, w.source)
			if err != nil {
				return nil, fmt.Errorf("%s of machines %s: %w", w.program, version, err)
			}
			programs[string(w.program)] = path
		}
		byVersion[version] = programs
	}
	return byVersion, nil
}
