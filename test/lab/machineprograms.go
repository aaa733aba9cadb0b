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

// The versions of Kubernetes that kubeadm machines can have: two of one minor version, for updates from the one to the other.
const (
	OlderMachineVersion = "v1.36.1"
	NewerMachineVersion = "v1.36.3"
)

// machineModules pin Kubernetes, by version.
var machineModules = map[string]string{OlderMachineVersion: "kubernetes-v1.36.1", NewerMachineVersion: "kubernetes"}

// kubernetesPrograms are built anew for each version, in this order; what takes long is compiled with the first.
var kubernetesPrograms = []struct{ name, cold string }{
	{"kube-apiserver", "4 minutes"}, {"kubeadm", "1 minute"}, {"kubelet", "2 minutes"}, {"kube-controller-manager", "1 minute"},
	{"kube-scheduler", "10 seconds"}, {"kube-proxy", "10 seconds"}, {"kubectl", "30 seconds"},
}

// machineSources are of programs that machines of all versions have.
var machineSources = map[string]source{
	"etcd": sources[Etcd],
	"pause": {module: rootModule, version: "v1", pkg: "./test/nodes/kubeadm/pause", cold: "1 second",
		files: []string{filepath.Join("test", "nodes", "kubeadm", "pause", "main.go")}},
	"coredns": {module: "coredns", version: "v1.14.2", pkg: "github.com/coredns/coredns", cold: "3 minutes"},
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

// buildMachinePrograms returns the programs of machines, by version, except for versions that need none.
func buildMachinePrograms(ctx context.Context, progress io.Writer, except []string) (map[string]kubeadm.Programs, error) {
	byVersion := map[string]kubeadm.Programs{}
	for _, version := range slices.Sorted(maps.Keys(machineModules)) {
		if slices.Contains(except, version) {
			continue
		}
		programs := kubeadm.Programs{}
		for _, name := range slices.Sorted(maps.Keys(machineSources)) {
			path, err := cached(ctx, progress, Program(name), machineSources[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			programs[name] = path
		}
		for _, p := range kubernetesPrograms {
			src := kubernetesSource(p.name, machineModules[version], version, p.cold)
			path, err := cached(ctx, progress, Program(p.name), src)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", p.name, version, err)
			}
			programs[p.name] = path
		}
		byVersion[version] = programs
	}
	return byVersion, nil
}
