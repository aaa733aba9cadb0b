package controlplane

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const nextVersion = "v1.36.3"

// nextConfig returns a cluster's configuration as it is for the next version.
func nextConfig(config string) string { return strings.Replace(config, "v1.36.1", nextVersion, 1) }

// askWith plans a change that comes with a version.
func (x *fixture) askWith(version string, was, want *node.Resource) kind.Answer {
	x.Helper()
	a, err := x.kind.Plan(x.Context(), kind.Question{Was: was, Known: true, Desired: want, Rules: disruption.BuiltinRules(), Kubernetes: version})
	require.NoError(x, err)
	return a
}

// next returns a manifest of the next version.
func (x *fixture) next(name string, args ...string) string {
	return strings.Replace(x.manifest(name, args...), "v1.36.1", nextVersion, 1)
}

// bringVersion has the node run the next version, as another kind does before: kubeadm makes all manifests but etcd's again.
func (x *fixture) bringVersion(apiServerArgs ...string) {
	x.Put(manifestPath(apiServer), x.next(apiServer, apiServerArgs...))
	x.Put(manifestPath(controllerManager), x.next(controllerManager))
	x.Put(manifestPath(scheduler), x.next(scheduler))
}

func TestPlanWithAVersion(t *testing.T) {
	repository := func(c *node.ControlPlane) { c.ImageRepository = "mirror.example" }
	for name, tc := range map[string]struct {
		version, config string
		want            *node.Resource
		blocked         string
		write           bool
	}{
		"that is brought before":           {version: nextVersion, config: nextConfig(auditConfig + etcdConfig), want: spec(audit), write: true},
		"that is another one":              {version: "v1.36.2", config: nextConfig(auditConfig + etcdConfig), want: spec(audit), blocked: "kubeadm would change the version too"},
		"that nobody speaks of":            {config: nextConfig(auditConfig + etcdConfig), want: spec(audit), blocked: "kubeadm would change the version too"},
		"that the node runs":               {version: "v1.36.1", config: auditConfig + etcdConfig, want: spec(audit), write: true},
		"and nothing else":                 {version: nextVersion, config: nextConfig(config + etcdConfig), want: spec(nil)},
		"and another image repository":     {version: nextVersion, config: nextConfig(strings.Replace(config, "registry.k8s.io", "mirror.example", 1) + etcdConfig), want: spec(repository), write: true},
		"and what the configuration lacks": {version: nextVersion, config: nextConfig(config + etcdConfig), want: spec(audit), blocked: "does not say what the specs do"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			x.Config = tc.config
			a := x.askWith(tc.version, spec(nil), tc.want)
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			}
			require.Contains(t, a.Blocked, tc.blocked)
			require.Equal(t, tc.write, a.Operation == node.Write)
			require.Empty(t, a.Drift)
		})
	}
}

// TestWhatComesWithAVersion has arguments, feature gates, the image repository and etcd's image change along with the version: kubeadm has
// made all that for the version, so there is nothing left to do, and nothing to take back.
func TestWhatComesWithAVersion(t *testing.T) {
	want := spec(func(c *node.ControlPlane) {
		audit(c)
		c.ImageRepository, c.FeatureGates = "mirror.example", map[string]bool{"NodeLocalCRISocket": true}
		c.Etcd.ImageTag = "3.6.9-0"
	})
	x := newFixture(t)
	x.Config = nextConfig(strings.Replace(auditConfig, "registry.k8s.io", "mirror.example", 1)) +
		"featureGates: {NodeLocalCRISocket: true}\netcd: {local: {dataDir: /var/lib/etcd, imageTag: 3.6.9-0}}\n"
	a := x.askWith(nextVersion, spec(nil), want)
	require.Empty(t, a.Blocked)
	c := kind.Change{Was: spec(nil), Desired: want, Before: a.Before}

	require.NoError(t, x.kind.Undo(t.Context(), c), "nothing was made yet")
	x.bringVersion("--audit-log-path=/var/log/audit")
	for _, name := range pods {
		x.Put(manifestPath(name), strings.NewReplacer("registry.k8s.io", "mirror.example", "3.6.8-0", "3.6.9-0").Replace(x.Get(manifestPath(name))))
	}
	made := map[string]string{}
	for _, name := range pods {
		made[name] = x.Get(manifestPath(name))
	}
	require.NoError(t, x.kind.Undo(t.Context(), c), "the version is not its own to take back")
	for range 2 {
		note, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Empty(t, note)
		require.Empty(t, x.calls(), "kubeadm is not called again")
		require.Empty(t, x.askWith(nextVersion, want, want))
	}
	for range 2 {
		require.NoError(t, x.kind.Undo(t.Context(), c))
		for _, name := range pods {
			require.Equal(t, made[name], x.Get(manifestPath(name)))
		}
	}
	require.NoFileExists(t, x.kind.sincePath())
	require.NoDirExists(t, x.Path(snapshots))
}

// TestWhatAVersionLeaves has etcd's arguments change along with the version, for which its manifest is left as it is.
func TestWhatAVersionLeaves(t *testing.T) {
	newChange := func(t *testing.T) (*fixture, kind.Change) {
		x := newFixture(t)
		x.Config = nextConfig(quotaConfig)
		a := x.askWith(nextVersion, spec(nil), spec(quota))
		require.Empty(t, a.Blocked)
		x.bringVersion()
		x.Put("/next/etcd.yaml", x.manifest(etcdMember, "--quota-backend-bytes=8589934592"))
		return x, kind.Change{Was: spec(nil), Desired: spec(quota), Before: a.Before}
	}
	undone := func(x *fixture, c kind.Change) {
		require.NoError(x, x.kind.Undo(x.Context(), c))
		require.Equal(x, x.manifest(etcdMember), x.Get(manifestPath(etcdMember)))
		for _, name := range []string{apiServer, controllerManager, scheduler} {
			require.Equal(x, x.next(name), x.Get(manifestPath(name)), "the new version stays")
		}
	}
	t.Run("is made, and taken back", func(t *testing.T) {
		x, c := newChange(t)
		note, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Contains(t, note, "a snapshot of etcd is kept")
		require.Equal(t, "upgrade node phase control-plane --etcd-upgrade=true --certificate-renewal=false\n", x.calls())
		require.Empty(t, x.askWith(nextVersion, spec(quota), spec(quota)).Drift)
		require.NotContains(t, x.Get("/var/lib/refit/"+sinceFile), "apiserver.key", "no key is kept")
		undone(x, c)
		undone(x, c)
	})
	t.Run("is made after a death between two moves", func(t *testing.T) {
		x, c := newChange(t)
		x.Put("/next/kube-scheduler.yaml", x.next(scheduler))
		x.Put("/fail-within", "") // the stand-in takes the scheduler's away
		_, err := x.kind.Make(t.Context(), c)
		require.Error(t, err)
		require.Equal(t, "(missing)", x.Get(manifestPath(scheduler)))
		require.NoError(t, os.Remove(x.Path("/fail-within")))
		_, err = x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, x.next(scheduler), x.Get(manifestPath(scheduler)))
		undone(x, c)
	})
	t.Run("is told apart from the change before", func(t *testing.T) {
		x, c := newChange(t)
		x.Put("/var/lib/refit/"+sinceFile, `{"change":"another","saved":{"files":{}}}`)
		_, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		undone(x, c)
	})
	t.Run("is not made by what can't be read", func(t *testing.T) {
		x, c := newChange(t)
		x.Put("/var/lib/refit/"+sinceFile, "{")
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "it is not JSON")
		require.ErrorContains(t, x.kind.Undo(t.Context(), c), "it is not JSON")
	})
}

// TestWhatAFailedVersionLeaves has the manifests stay at the version, with the arguments that came with it: that is nobody's doing.
func TestWhatAFailedVersionLeaves(t *testing.T) {
	want := spec(func(c *node.ControlPlane) { audit(c); quota(c) })
	was := spec(func(c *node.ControlPlane) { arg(&c.APIServer, "audit-log-path", "/old") })
	x := newFixture(t)
	x.Config = nextConfig(quotaConfig + "apiServer:\n  extraArgs:\n  - {name: audit-log-path, value: /var/log/audit}\n")
	x.bringVersion("--audit-log-path=/var/log/audit")
	a := x.askWith(nextVersion, was, want)
	require.Empty(t, a.Blocked)
	require.Equal(t, node.Write, a.Operation)
	require.False(t, a.Conflict)
	x.bringVersion("--audit-log-path=/of-somebody")
	require.True(t, x.askWith(nextVersion, was, want).Conflict)
}

func TestPods(t *testing.T) {
	x := newFixture(t)
	p, err := x.kind.Pods()
	require.NoError(t, err)
	require.Equal(t, "v1.36.1", p.Tag(scheduler))
	require.Equal(t, "3.6.8-0", p.Tag(etcdMember))
	require.Equal(t, "/etc/kubernetes/pki", p.PKI())
	require.True(t, p.Etcd())
	require.NoError(t, p.Spare(t.Context()))
	require.NoError(t, p.Steady(t.Context()))
	c, err := x.kind.Configuration(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.CheckVersion("v1.36.1"))
	require.Error(t, c.CheckVersion(nextVersion))
	require.True(t, c.EtcdStays(p, "3.6.8-0"))
	require.False(t, c.EtcdStays(p, "3.6.9-0"))
	for config, stays := range map[string]bool{
		"etcd: {local: {imageTag: 3.6.8-0}}": true, "etcd: {local: {imageRepository: other.example}}": false, "etcd: {external: {endpoints: [a]}}": true,
	} {
		x.Set(func(n *staticpodtest.Node) { n.Config = "apiVersion: kubeadm.k8s.io/v1beta4\n" + config })
		c, err := x.kind.Configuration(t.Context())
		require.NoError(t, err)
		require.Equal(t, stays, c.EtcdStays(p, map[bool]string{true: "3.6.9-0", false: "3.6.8-0"}[stays]), config)
		require.Equal(t, !strings.Contains(config, "external"), c.LocalEtcd())
	}
	require.NoError(t, os.Remove(x.Path(manifestPath(scheduler))))
	p, err = x.kind.Pods()
	require.NoError(t, err)
	require.Empty(t, p.Tag(scheduler))
	require.NoError(t, os.Remove(x.Path(manifestPath(apiServer))))
	p, err = x.kind.Pods()
	require.NoError(t, err)
	require.Nil(t, p)
}
