package controlplane

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

// kubeadm does what the tests have laid out in /next, and notes how it was called and what it was given.
func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		was, want *node.Resource
		prepare   func(x *fixture)
		config    string
		write     bool
		conflict  bool
		blocked   string
		drift     []string
	}{
		"nothing":                         {was: spec(nil), want: spec(nil)},
		"no etcd of its own":              {was: &node.Resource{ControlPlane: &node.ControlPlane{}}, want: spec(nil)},
		"the specs no longer speak of it": {was: spec(audit)},
		"an added argument":               {was: spec(nil), want: spec(audit), config: auditConfig, write: true},
		"not known, and not there":        {want: spec(audit), config: auditConfig, write: true},
		"not known, but there": {want: spec(audit), prepare: func(x *fixture) {
			x.Put(manifestPath(apiServer), x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
		}},
		"changed, but there already": {was: spec(nil), want: spec(audit), prepare: func(x *fixture) {
			x.Put(manifestPath(apiServer), x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
		}},
		"a removed argument": {was: spec(audit), want: spec(nil), write: true, prepare: func(x *fixture) {
			x.Put(manifestPath(apiServer), x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
		}},
		"a removed argument that is gone":   {was: spec(audit), want: spec(nil)},
		"a removed argument of another use": {was: spec(audit), want: spec(nil), prepare: func(x *fixture) { x.Put(manifestPath(apiServer), x.manifest(apiServer, "--audit-log-path=/other")) }},
		"drift":                             {was: spec(audit), want: spec(audit), drift: []string{"kube-apiserver --audit-log-path"}},
		"changed on both sides":             {was: spec(audit), want: spec(nil), prepare: func(x *fixture) { x.Put(manifestPath(scheduler), "") }, blocked: ""},
		"what manifests do not show": {
			was: spec(nil), want: spec(func(c *node.ControlPlane) { c.FeatureGates = map[string]bool{"RootlessControlPlane": false} }),
			config: config + "featureGates: {RootlessControlPlane: false}\n", write: true,
		},
		"a feature gate that kubeadm of this version does not know": {
			was: spec(nil), want: spec(func(c *node.ControlPlane) { c.FeatureGates = map[string]bool{"EtcdLearnerMode": true} }),
			config: config + "featureGates: {EtcdLearnerMode: true}\n", blocked: "kubeadm of v1.36.1 has no feature gate EtcdLearnerMode",
		},
		"a feature gate that acts elsewhere": {
			was: spec(nil), want: spec(func(c *node.ControlPlane) { c.FeatureGates = map[string]bool{"PublicKeysECDSA": true} }),
			config: config + "featureGates: {PublicKeysECDSA: true}\n", blocked: "acts on the keys of certificates",
		},
		"a feature gate that was there, with an argument": {
			was:    spec(func(c *node.ControlPlane) { c.FeatureGates = map[string]bool{"PublicKeysECDSA": true} }),
			want:   spec(func(c *node.ControlPlane) { audit(c); c.FeatureGates = map[string]bool{"PublicKeysECDSA": true} }),
			config: auditConfig + "featureGates: {PublicKeysECDSA: true}\n", write: true,
		},
		"the same, but not known to be changed": {want: spec(func(c *node.ControlPlane) { c.FeatureGates = map[string]bool{"X": true} })},
		"patches of another directory":          {was: spec(nil), want: spec(func(c *node.ControlPlane) { c.PatchesDirectory = "/etc/patches" }), write: true},
		"a manifest that is patched": {
			was:     spec(func(c *node.ControlPlane) { audit(c); c.PatchesDirectory = "/etc/patches" }),
			want:    spec(func(c *node.ControlPlane) { audit(c); c.PatchesDirectory = "/etc/patches" }),
			prepare: func(x *fixture) { x.Put("/etc/patches/kube-apiserver0+merge.yaml", "") },
		},
		"kubeadm-config says otherwise": {was: spec(nil), want: spec(audit), blocked: "kubeadm-config in kube-system does not say what the specs do (kube-apiserver extraArgs)"},
		"kubeadm-config says more": {
			was: spec(nil), want: spec(audit), config: auditConfig + "  - {name: x, value: secret-value}\n", blocked: "(kube-apiserver extraArgs)",
		},
		"kubeadm-config of before v1beta4": {
			was: spec(nil), want: spec(audit), write: true,
			config: strings.Replace(config, "v1beta4", "v1beta3", 1) + "apiServer:\n  extraArgs: {audit-log-path: /var/log/audit}\n",
		},
		"kubeadm-config of another version": {
			was: spec(nil), want: spec(audit), config: strings.Replace(auditConfig, "v1.36.1", "v1.36.3", 1), blocked: "kubeadm would change the version too",
		},
		"an image repository that Cluster API does not take back": {
			was: spec(func(c *node.ControlPlane) { c.ImageRepository = "registry.k8s.io" }), want: spec(nil), blocked: "imageRepository",
		},
		"an etcd that kubeadm does not go back to": {
			was: spec(nil), want: spec(etcdTag("3.6.6-0")), config: config + "etcd: {local: {dataDir: /var/lib/etcd, imageTag: 3.6.6-0}}\n",
			blocked: "kubeadm does not take etcd back from 3.6.8-0 to 3.6.6-0",
		},
		"an etcd that kubeadm can't compare": {
			was: spec(nil), want: spec(etcdTag("ours")), config: config + "etcd: {local: {dataDir: /var/lib/etcd, imageTag: ours}}\n",
			blocked: "kubeadm can't compare it",
		},
		"a newer etcd": {
			was: spec(nil), want: spec(etcdTag("3.6.9-0")), config: config + "etcd: {local: {dataDir: /var/lib/etcd, imageTag: 3.6.9-0}}\n", write: true,
		},
		"no kubeadm": {was: spec(nil), want: spec(audit), prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path("/usr/bin/kubeadm"))) }, blocked: "has no kubeadm"},
		"not a control-plane node": {
			was: spec(nil), want: spec(audit), prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path(manifestPath(apiServer)))) }, blocked: "not a control-plane node",
		},
		"not a control-plane node, but no wish": {
			was: spec(nil), want: spec(nil), prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path(manifestPath(apiServer)))) },
		},
		"a control-plane node no longer": {
			was: spec(audit), want: spec(audit), prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path(manifestPath(apiServer)))) }, drift: []string{"kube-apiserver missing"},
		},
		"etcd by default, as Cluster API writes it": {was: spec(nil), want: spec(audit), config: auditConfig + "etcd: {}\n", write: true},
		"etcd with members to spare":                {was: spec(nil), want: spec(quota), config: quotaConfig, write: true},
		"etcd without":                              {was: spec(nil), want: spec(quota), config: quotaConfig, prepare: func(x *fixture) { x.Members = `{"name":"a"}` }, blocked: "no member to spare"},
		"an etcd elsewhere":                         {was: spec(nil), want: spec(quota), config: quotaConfig, prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path(manifestPath(etcdMember)))) }, blocked: "etcd does not run on this node"},
		"names of the certificate":                  {was: spec(nil), want: spec(func(c *node.ControlPlane) { c.CertSANs = []string{"a.example"} }), config: config + "apiServer: {certSANs: [a.example]}\n", write: true},
		"names that it has":                         {was: spec(nil), want: spec(func(c *node.ControlPlane) { c.CertSANs = []string{"KUBERNETES", "127.0.0.1"} })},
		"a certificate of an authority elsewhere": {
			was: spec(nil), want: spec(func(c *node.ControlPlane) { c.CertSANs = []string{"a.example"} }), config: config + "apiServer: {certSANs: [a.example]}\n",
			prepare: func(x *fixture) { require.NoError(x, os.Remove(x.Path("/etc/kubernetes/pki/ca.key"))) }, blocked: "/etc/kubernetes/pki/ca.key is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			if tc.config != "" {
				x.Config = tc.config
			}
			if !strings.Contains(x.Config, "etcd:") {
				x.Config += etcdConfig
			}
			if name == "changed on both sides" {
				tc.was, tc.want, tc.write, tc.conflict = spec(audit), spec(func(c *node.ControlPlane) { arg(&c.APIServer, "audit-log-path", "/b") }), true, true
				x.Config = strings.Replace(auditConfig, "/var/log/audit", "/b", 1) + etcdConfig
				tc.prepare = nil
			}
			if tc.prepare != nil {
				tc.prepare(x)
			}
			a := x.ask(tc.was, tc.want)
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			} else {
				require.Contains(t, a.Blocked, tc.blocked)
				require.NotContains(t, a.Blocked, "secret-value")
			}
			require.Equal(t, tc.write, a.Operation == node.Write)
			require.Equal(t, tc.conflict, a.Conflict)
			require.Equal(t, tc.drift, a.Drift)
			require.Empty(t, x.calls(), "planning calls nothing")
		})
	}
}

func TestMakeAndUndo(t *testing.T) {
	x := newFixture(t)
	x.Config = auditConfig + etcdConfig
	old := x.Get(manifestPath(apiServer))
	c := x.change(spec(nil), spec(audit))
	next := x.manifest(apiServer, "--audit-log-path=/var/log/audit")
	x.Put("/next/kube-apiserver.yaml", next)
	x.Put("/next/etcd.yaml", x.manifest(etcdMember, "--never"))
	x.Set(func(n *staticpodtest.Node) { n.Lag, n.Down = 3, 2 })
	for range 2 {
		note, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Empty(t, note)
		require.Equal(t, next, x.Get(manifestPath(apiServer)))
		require.Equal(t, x.manifest(etcdMember), x.Get(manifestPath(etcdMember)))
	}
	call := "upgrade node phase control-plane --etcd-upgrade=false --certificate-renewal=false\n"
	require.Equal(t, call+call, x.calls())
	require.Empty(t, x.ask(c.Desired, c.Desired).Drift)
	require.NoDirExists(t, x.Path(snapshots))

	for range 2 {
		require.NoError(t, x.kind.Undo(t.Context(), c))
		require.Equal(t, old, x.Get(manifestPath(apiServer)))
	}
	require.Equal(t, call+call, x.calls(), "what was is put back without kubeadm")
	require.Equal(t, []string{"kube-apiserver --audit-log-path"}, x.ask(c.Desired, c.Desired).Drift)
}

func TestEtcdIsChangedAfterASnapshot(t *testing.T) {
	x := newFixture(t)
	x.Config = quotaConfig
	c := x.change(spec(nil), spec(quota))
	x.Put("/next/etcd.yaml", x.manifest(etcdMember, "--quota-backend-bytes=8589934592"))

	x.Set(func(*staticpodtest.Node) { x.Members = `{"name":"a"},{"name":"b"}` })
	_, err := x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "no member to spare", "it is asked again before it is touched")
	x.Set(func(*staticpodtest.Node) { x.Members = `{"name":"a"},{"name":"b"},{"name":"c"}` })
	x.kind.space = func(string) (host.Space, error) { return host.Space{}, nil }
	_, err = x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "make room")
	require.Empty(t, x.calls())

	x.kind.space = func(string) (host.Space, error) { return host.Space{Free: 1 << 40}, nil }
	note, err := x.kind.Make(t.Context(), c)
	require.NoError(t, err)
	require.Contains(t, note, "a snapshot of etcd is kept in /var/lib/refit/etcd/20260102T030405Z-")
	files, err := os.ReadDir(x.Path(snapshots))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, "upgrade node phase control-plane --etcd-upgrade=true --certificate-renewal=false\n", x.calls())
	note, err = x.kind.Make(t.Context(), c)
	require.NoError(t, err)
	require.Empty(t, note, "etcd is as it is wanted, so it is left alone the second time")
	require.NoError(t, x.kind.Undo(t.Context(), c))
	require.Equal(t, x.manifest(etcdMember), x.Get(manifestPath(etcdMember)))

	x.Put(manifestPath(etcdMember), strings.Replace(x.manifest(etcdMember), "3.6.8-0", "3.7.0-0", 1))
	require.ErrorContains(t, x.kind.Undo(t.Context(), c), "another minor version")
}

func TestFailuresOfKubeadm(t *testing.T) {
	newChange := func(t *testing.T) (*fixture, kind.Change, string) {
		x := newFixture(t)
		x.Config = auditConfig + etcdConfig
		c := x.change(spec(nil), spec(audit))
		x.Put("/next/kube-apiserver.yaml", x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
		return x, c, x.Get(manifestPath(apiServer))
	}
	t.Run("that it has seen to itself", func(t *testing.T) {
		x, c, old := newChange(t)
		x.Put("/fail-before", "")
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "error: timed out; the manifests are as they were")
		require.NoError(t, x.kind.Undo(t.Context(), c))
		require.Equal(t, old, x.Get(manifestPath(apiServer)))
	})
	t.Run("that it has not", func(t *testing.T) {
		x, c, old := newChange(t)
		x.Put("/fail-within", "")
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "it has not put back kube-apiserver.yaml, kube-scheduler.yaml")
		require.NoError(t, x.kind.Undo(t.Context(), c))
		require.Equal(t, old, x.Get(manifestPath(apiServer)))
		require.Equal(t, x.manifest(scheduler), x.Get(manifestPath(scheduler)))
	})
	t.Run("a death in its midst, and the change made again", func(t *testing.T) {
		x, c, _ := newChange(t)
		x.Put("/fail-within", "")
		_, err := x.kind.Make(t.Context(), c)
		require.Error(t, err)
		require.NoError(t, os.Remove(x.Path("/fail-within")))
		_, err = x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, x.manifest(scheduler), x.Get(manifestPath(scheduler)))
		require.Equal(t, x.Get("/next/kube-apiserver.yaml"), x.Get(manifestPath(apiServer)))
	})
	t.Run("kubeadm-config that has changed since", func(t *testing.T) {
		x, c, _ := newChange(t)
		x.Set(func(n *staticpodtest.Node) { n.Config = config + etcdConfig })
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "kubeadm-config in kube-system does not say")
		require.Empty(t, x.calls())
	})
	t.Run("proxies that the node was made with", func(t *testing.T) {
		x, c, _ := newChange(t)
		env := "    env: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}, {name: OTHER, value: x}]\n"
		x.Put(manifestPath(apiServer), x.manifest(apiServer)+env)
		x.Put("/next/kube-apiserver.yaml", x.Get("/next/kube-apiserver.yaml")+env)
		_, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Contains(t, x.calls(), "\nHTTPS_PROXY=http://proxy:3128\n")
		require.NotContains(t, x.calls(), "OTHER")
	})
}
