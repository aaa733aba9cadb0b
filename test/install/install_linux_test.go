//go:build e2e

package install

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	before, after = "v0.1.0", "v0.1.1"
	namespace     = "refit-system"
	images        = "ghcr.io/capi-refit/refit:"
)

// A way is one in which users install refit. Each is the command of docs/install.md and docs/upgrade.md.
type way struct {
	install, upgrade, remove func() (string, error)
	// stays says that upgrades leave the ExtensionConfig where it is.
	stays bool
	// checked has refit check look at it.
	checked bool
	// leaves are the kinds of what is left when it is removed, and tidy takes that away.
	leaves []string
	tidy   func() (string, error)
}

// TestInstalled installs refit in each way, upgrades it, and removes it, while Cluster API's managers run.
func TestInstalled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	repository := t.TempDir()
	releases, err := Releases(ctx, root, repository, before, after)
	require.NoError(t, err)
	m, err := Start(ctx, Options{Source: root, BinDir: filepath.Join(root, "bin"), Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Stop()) })
	cluster, err := m.Lab.CreateCluster(ctx, lab.ClusterOptions{ControlPlaneReplicas: new(int32(1)), WorkerReplicas: new(int32(1))})
	require.NoError(t, err)

	i := &installation{Management: m, cluster: cluster}
	t.Run("kubectl", func(t *testing.T) { i.goesThrough(ctx, t, i.byKubectl(ctx, t, root)) })
	t.Run("Helm", func(t *testing.T) { i.goesThrough(ctx, t, i.byHelm(ctx, releases)) })
	config, err := m.ForClusterctl(ctx, repository, before)
	require.NoError(t, err)
	t.Run("clusterctl", func(t *testing.T) { i.goesThrough(ctx, t, i.byClusterctl(ctx, config)) })
}

type installation struct {
	*Management

	cluster *lab.Cluster
	changes int
	// controlPlane and workers are the names of the KubeadmControlPlane and the MachineDeployment.
	controlPlane, workers string
	// asked is the namespace that refit check is asked about, and logins to how many nodes it logs in.
	asked, logins string
}

func (i *installation) byKubectl(ctx context.Context, t *testing.T, root string) way {
	t.Helper()
	dirs := map[string]string{}
	for _, version := range []string{before, after} {
		dirs[version] = filepath.Join(i.Dir, "kustomize", version)
		require.NoError(t, os.CopyFS(filepath.Join(dirs[version], "config"), os.DirFS(filepath.Join(root, "config"))))
		file := filepath.Join(dirs[version], "config", "manager", "kustomization.yaml")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(data), "newTag: dev ")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(data), "newTag: dev ", "newTag: "+version+" ", 1)), 0o600))
	}
	run := func(version string, args ...string) func() (string, error) {
		return func() (string, error) { return i.Run(ctx, dirs[version], nil, lab.Kubectl, args...) }
	}
	return way{
		install: run(before, "apply", "-k", "config/default"), upgrade: run(after, "apply", "-k", "config/default"),
		remove: run(after, "delete", "-k", "config/default", "--ignore-not-found"), stays: true, checked: true,
	}
}

func (i *installation) byHelm(ctx context.Context, releases []string) way {
	run := func(args ...string) func() (string, error) {
		return func() (string, error) { return i.Run(ctx, "", nil, lab.Helm, args...) }
	}
	return way{
		install: run("install", "refit", filepath.Join(releases[0], "refit-0.1.0.tgz"), "-n", namespace, "--create-namespace", "--wait"),
		upgrade: run("upgrade", "refit", filepath.Join(releases[1], "refit-0.1.1.tgz"), "-n", namespace, "--wait"),
		remove:  run("uninstall", "-n", namespace, "refit", "--wait"), stays: true,
		leaves: []string{"customresourcedefinitions", "namespaces"},
		tidy: func() (string, error) {
			if out, err := i.Run(ctx, "", nil, lab.Kubectl, "delete", "namespace", namespace); err != nil {
				return out, err
			}
			return i.Run(ctx, "", nil, lab.Kubectl, "delete", "crd", "-l", "cluster.x-k8s.io/provider="+label)
		},
	}
}

func (i *installation) byClusterctl(ctx context.Context, config string) way {
	run := func(args ...string) func() (string, error) {
		return func() (string, error) {
			return i.Run(ctx, "", nil, lab.Clusterctl, append(args, "--config", config)...)
		}
	}
	return way{
		install: run("init", "--runtime-extension", "refit:"+before, "--wait-providers"),
		upgrade: run("upgrade", "apply", "--runtime-extension", "refit:"+after, "--wait-providers"),
		remove:  run("delete", "--runtime-extension", "refit", "--include-namespace", "--include-crd"),
	}
}

// goesThrough installs, upgrades and removes refit.
func (i *installation) goesThrough(ctx context.Context, t *testing.T, w way) {
	was, err := i.OfRefit(ctx, namespace)
	require.NoError(t, err)

	_, err = w.install()
	require.NoError(t, err)
	i.works(ctx, t, before)
	first := i.extension(ctx, t)

	_, err = w.upgrade()
	require.NoError(t, err)
	i.works(ctx, t, after)
	if w.checked {
		t.Run("refit check", func(t *testing.T) { i.findsMistakes(ctx, t) })
	}
	assert.Equal(t, w.stays, first.UID == i.extension(ctx, t).UID, "docs/upgrade.md says when the ExtensionConfig is made again")

	_, err = i.Run(ctx, "", nil, lab.Kubectl, "delete", "extensionconfig", "refit")
	require.NoError(t, err)
	_, err = w.remove()
	require.NoError(t, err)
	i.isGone(ctx, t, was, w.leaves)
	i.replacesMachines(ctx, t)
	if w.tidy != nil {
		_, err = w.tidy()
		require.NoError(t, err)
		i.isGone(ctx, t, was, nil)
	}
}

func (i *installation) extension(ctx context.Context, t *testing.T) *runtimev1.ExtensionConfig {
	t.Helper()
	var config runtimev1.ExtensionConfig
	require.NoError(t, i.Client.Get(ctx, client.ObjectKey{Name: "refit"}, &config))
	return &config
}

// works requires that both replicas are of a version, that both of Cluster API's managers know the extension by the authority that cert-manager made,
// and that the API server asks it about policies.
func (i *installation) works(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	require.NoError(t, i.AwaitImage(ctx, namespace, images+version))
	_, err := i.Run(ctx, "", nil, lab.Kubectl, "rollout", "status", "deployment/refit", "-n", namespace, "--timeout=1m")
	require.NoError(t, err)
	require.NoError(t, i.Lab.WaitForExtension(ctx, "refit"))
	config := i.extension(ctx, t)
	require.Len(t, config.Status.Handlers, 8)
	require.True(t, config.Spec.ClientConfig.Service.IsDefined())
	require.NotEmpty(t, config.Spec.ClientConfig.CABundle)

	policy := &refitv1.ChangeManagementPolicy{}
	policy.Namespace, policy.Name = i.cluster.Namespace, "unreadable"
	policy.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	policy.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{TimeZone: "Mars/Olympus", Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY"}}}
	refused := ""
	err = poll(ctx, func(ctx context.Context) bool {
		if err := i.Client.Create(ctx, policy.DeepCopy(), client.DryRunAll); err != nil {
			refused = err.Error()
		}
		return strings.Contains(refused, "policies.capi-refit.dev") && strings.Contains(refused, "Mars/Olympus")
	})
	require.NoError(t, err, "the webhook refuses no policy that can't be read; what was said last: %s", refused)
}

// isGone requires that nothing is left of refit but the kinds that are named, and what is in no object's place.
func (i *installation) isGone(ctx context.Context, t *testing.T, was, leaves []string) {
	t.Helper()
	var left []string
	err := poll(ctx, func(ctx context.Context) bool {
		now, err := i.OfRefit(ctx, namespace)
		left = slices.DeleteFunc(now, func(o string) bool {
			kind, _, _ := strings.Cut(o, ".")
			inNamespace := strings.Contains(o, "/"+namespace+"/") && slices.Contains(leaves, "namespaces")
			isAPI := kind == "apiservices" && slices.Contains(leaves, "customresourcedefinitions")
			return slices.Contains(was, o) || slices.Contains(leaves, kind) || inNamespace || isAPI
		})
		return err == nil && len(left) == 0
	})
	require.NoError(t, err, "left: %s", left)
}

// replacesMachines requires that Cluster API goes on: it rolls a change out as it does without an extension.
func (i *installation) replacesMachines(ctx context.Context, t *testing.T) {
	t.Helper()
	was, err := i.cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	i.changes++
	file := bootstrapv1.File{Path: "/etc/demo.conf", Content: strings.Repeat("x", i.changes), Owner: "root:root", Permissions: "0644"}
	require.NoError(t, i.cluster.SetWorkerFiles(ctx, file))
	require.NoError(t, i.cluster.WaitForRollout(ctx))
	now, err := i.cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.Len(t, now, len(was))
	for _, m := range now {
		for _, old := range was {
			require.NotEqual(t, old.UID, m.UID, "%s was not replaced", m.Name)
		}
	}
	select {
	case err := <-i.Lab.Failed():
		require.NoError(t, err, "a manager has ended")
	default:
	}
}
