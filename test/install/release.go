package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capi-refit/refit/test/lab"
)

// label is by what clusterctl knows refit, and how it calls the directory of a local repository.
const label = "runtime-extension-refit"

// platforms are those of a release.
var platforms = []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"}

// Releases makes releases as `make release` does out of the project's source, in a directory that is a local repository for clusterctl then, and returns
// the directories of the versions. In the place of the command, whose six platforms take minutes to build and to pack, they have a small program.
func Releases(ctx context.Context, source, repository string, versions ...string) ([]string, error) {
	temporary, err := os.MkdirTemp("", "refit-releases-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	programs, tool := filepath.Join(temporary, "programs"), filepath.Join(temporary, "release")
	for out, pkg := range map[string]string{tool: "./build/release", filepath.Join(programs, "small"): "./test/nodes/kubeadm/pause"} {
		if err := command(ctx, source, "go", "build", "-trimpath", "-o", out, pkg); err != nil {
			return nil, err
		}
	}
	for _, p := range platforms {
		if err := os.Link(filepath.Join(programs, "small"), filepath.Join(programs, "refit-"+p)); err != nil {
			return nil, err
		}
	}
	var dirs []string
	for _, v := range versions {
		dir := filepath.Join(repository, label, v)
		if err := command(ctx, source, tool, "--version", v, "--programs", programs, "--out", dir); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

// clusterAPI are the providers that the lab has, as clusterctl names them.
var clusterAPI = []struct{ name, label, kind, namespace, components string }{
	{"cluster-api", "cluster-api", "CoreProvider", "capi-system", "core-components.yaml"},
	{"kubeadm", "bootstrap-kubeadm", "BootstrapProvider", "capi-kubeadm-bootstrap-system", "bootstrap-components.yaml"},
	{"kubeadm", "control-plane-kubeadm", "ControlPlaneProvider", "capi-kubeadm-control-plane-system", "control-plane-components.yaml"},
}

// ForClusterctl makes the management cluster one that clusterctl knows: it has an inventory of Cluster API's providers, as `clusterctl init` writes it,
// since the lab installs them without it. What clusterctl has to know is in the configuration file of which it returns the path: where a
// repository has refit's releases, to which the metadata of Cluster API is added.
func (m *Management) ForClusterctl(ctx context.Context, repository, version string) (string, error) {
	source, err := lab.ModuleDir(ctx, lab.Clusterctl, "sigs.k8s.io/cluster-api")
	if err != nil {
		return "", err
	}
	metadata, err := os.ReadFile(filepath.Join(source, "metadata.yaml"))
	if err != nil {
		return "", err
	}
	var config strings.Builder
	fmt.Fprintf(&config, "providers:\n- {name: refit, type: RuntimeExtensionProvider, url: %s}\n", filepath.Join(repository, label, version, "runtime-extension-components.yaml"))
	for _, p := range clusterAPI {
		dir := filepath.Join(repository, p.label, lab.ClusterAPIVersion)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "metadata.yaml"), metadata, 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&config, "- {name: %s, type: %s, url: %s}\n", p.name, p.kind, filepath.Join(dir, p.components))
	}
	file := filepath.Join(m.Dir, "clusterctl.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return "", err
	}
	return file, m.inventory(ctx, source)
}

// inventory has clusterctl's own kind, and an object of it for each provider of the lab.
func (m *Management) inventory(ctx context.Context, source string) error {
	crd := filepath.Join(source, "cmd", "clusterctl", "config", "manifest", "clusterctl-api.yaml")
	if _, err := m.Run(ctx, "", nil, lab.Kubectl, "apply", "--server-side", "-f", crd); err != nil {
		return err
	}
	if _, err := m.Run(ctx, "", nil, lab.Kubectl, "wait", "--for=condition=Established", "crd/providers.clusterctl.cluster.x-k8s.io", "--timeout=1m"); err != nil {
		return err
	}
	for _, p := range clusterAPI {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
			"providerName": p.name, "type": p.kind, "version": lab.ClusterAPIVersion,
		}}
		o.SetNamespace(p.namespace)
		o.SetName(p.label)
		o.SetLabels(map[string]string{
			"clusterctl.cluster.x-k8s.io": "", "clusterctl.cluster.x-k8s.io/core": "inventory", "cluster.x-k8s.io/provider": p.label,
		})
		if err := m.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// AwaitImage waits until two Pods of refit are ready in a namespace, and no other is there, all of one version's image.
func (m *Management) AwaitImage(ctx context.Context, namespace, image string) error {
	last := "there is none"
	err := poll(ctx, func(ctx context.Context) bool {
		var list corev1.PodList
		if m.Client.List(ctx, &list, refitPods) != nil {
			return false
		}
		last = fmt.Sprintf("%d Pods", len(list.Items))
		for i := range list.Items {
			p := &list.Items[i]
			if p.Namespace != namespace || p.Spec.Containers[0].Image != image || !isReady(p) || !p.DeletionTimestamp.IsZero() {
				last = fmt.Sprintf("%s/%s, of image %s, is ready: %t", p.Namespace, p.Name, p.Spec.Containers[0].Image, isReady(p))
				return false
			}
		}
		return len(list.Items) == 2
	})
	if err != nil {
		return fmt.Errorf("wait for the Pods of refit (%s): %w", last, err)
	}
	return nil
}

// patience is for how long anything is waited for. Most of it takes seconds.
const patience = 3 * time.Minute

func poll(ctx context.Context, ok func(context.Context) bool) error {
	return wait.PollUntilContextTimeout(ctx, again, patience, true, func(ctx context.Context) (bool, error) { return ok(ctx), nil })
}
