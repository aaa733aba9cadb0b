package controlplane

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// kubeadm does what the tests have laid out in /next, and notes how it was called and what it was given.
func TestCertificate(t *testing.T) {
	want := spec(func(c *node.ControlPlane) { c.CertSANs = []string{"a.example", "10.1.2.3", "*.b.example"} })
	newChange := func(t *testing.T) (*fixture, kind.Change) {
		x := newFixture(t)
		x.Config = config + etcdConfig + "apiServer: {certSANs: [10.1.2.3, a.example, '*.b.example']}\n"
		return x, x.change(spec(nil), want)
	}
	next := func(x *fixture, sans ...string) {
		cert, key := x.CA.Issue("kube-apiserver", sans...)
		x.Put("/next/apiserver.crt", string(cert))
		x.Put("/next/apiserver.key", string(key))
	}
	const certFile, keyFile = "/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key"
	t.Run("is made and put back", func(t *testing.T) {
		x, c := newChange(t)
		cert, key := x.Get(certFile), x.Get(keyFile)
		next(x, "kubernetes", "127.0.0.1", "a.example", "10.1.2.3", "*.b.example")
		for range 2 {
			_, err := x.kind.Make(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, x.Get("/next/apiserver.crt"), x.Get(certFile))
			require.Equal(t, x.Get("/next/apiserver.key"), x.Get(keyFile))
		}
		require.Equal(t, "init phase certs apiserver --config=/var/lib/refit/certificate/kubeadm.yaml\n", x.calls(), "once, and no manifest is made again")
		given := x.Get("/kubeadm.yaml")
		for _, line := range []string{
			"certificatesDir: /var/lib/refit/certificate", "controlPlaneEndpoint: example.com:6443", "kind: InitConfiguration",
			"name: cp-1", "advertiseAddress: 127.0.0.1", "kubernetesVersion: v1.36.1",
		} {
			require.Contains(t, given, line)
		}
		require.NoDirExists(t, x.Path("/var/lib/refit/certificate"))
		require.Empty(t, x.ask(want, want).Drift)
		require.NoError(t, x.kind.Undo(t.Context(), c))
		require.Equal(t, cert+key, x.Get(certFile)+x.Get(keyFile))
		require.Equal(t, []string{"certificate of kube-apiserver"}, x.ask(want, want).Drift)
	})
	t.Run("that lacks a name is not put in place", func(t *testing.T) {
		x, c := newChange(t)
		cert := x.Get(certFile)
		next(x, "kubernetes", "127.0.0.1", "a.example")
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "lacks some of certSANs")
		require.Equal(t, cert, x.Get(certFile))
		require.NoDirExists(t, x.Path("/var/lib/refit/certificate"))
	})
	t.Run("that fits no key is made again", func(t *testing.T) {
		x, c := newChange(t)
		next(x, "kubernetes", "127.0.0.1", "a.example", "10.1.2.3", "*.b.example")
		x.Put(keyFile, x.Get("/next/apiserver.key")) // the process died between the two
		_, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, x.Get("/next/apiserver.crt"), x.Get(certFile))
	})
}

// TestDifferences has one row for each thing that a manifest shows.
func TestDifferences(t *testing.T) {
	volume := node.ExtraVolume{Name: "audit", HostPath: "/var/log/audit", MountPath: "/audit", PathType: "DirectoryOrCreate"}
	manifest := `apiVersion: v1
kind: Pod
metadata: {name: kube-scheduler, namespace: kube-system}
spec:
  containers:
  - name: sidecar
    image: x
  - name: kube-scheduler
    image: mirror.example:5000/k8s/kube-scheduler:v1.36.1
    command: [kube-scheduler, --v=2, --feature-gates=A=true, --feature-gates=B=false]
    env: [{name: X, value: "1"}]
    volumeMounts: [{name: audit, mountPath: /audit}]
  volumes:
  - {name: audit, hostPath: {path: /var/log/audit, type: DirectoryOrCreate}}
`
	x := newFixture(t)
	x.Put(manifestPath(scheduler), manifest)
	s, err := x.kind.look()
	require.NoError(t, err)
	of := func(c node.Component) *node.ControlPlane { return &node.ControlPlane{Scheduler: c} }
	args := func(pairs ...string) node.Component {
		var c node.Component
		for _, p := range pairs {
			name, value, _ := strings.Cut(p, "=")
			arg(&c, name, value)
		}
		return c
	}
	readOnly, other := volume, volume
	readOnly.ReadOnly, other.HostPath = true, "/other"
	for name, tc := range map[string]struct {
		want, was *node.ControlPlane
		differs   []string
	}{
		"arguments that are there": {want: of(args("v=2", "feature-gates=A=true", "feature-gates=B=false"))},
		"in another order":         {want: of(args("feature-gates=B=false", "feature-gates=A=true")), differs: []string{"kube-scheduler --feature-gates"}},
		"one that is not":          {want: of(args("x=1")), differs: []string{"kube-scheduler --x"}},
		"one that was wanted":      {want: of(args()), was: of(args("v=2")), differs: []string{"kube-scheduler --v"}},
		"a variable":               {want: of(node.Component{ExtraEnvs: []node.Env{{Name: "X", Value: "0"}, {Name: "X", Value: "1"}}})},
		"another value":            {want: of(node.Component{ExtraEnvs: []node.Env{{Name: "X", Value: "2"}}}), differs: []string{"kube-scheduler env X"}},
		"a variable that was":      {want: of(args()), was: of(node.Component{ExtraEnvs: []node.Env{{Name: "X", Value: "1"}}}), differs: []string{"kube-scheduler env X"}},
		"a volume":                 {want: of(node.Component{ExtraVolumes: []node.ExtraVolume{volume}})},
		"a read-only one":          {want: of(node.Component{ExtraVolumes: []node.ExtraVolume{readOnly}}), differs: []string{"kube-scheduler volume audit"}},
		"another directory":        {want: of(node.Component{ExtraVolumes: []node.ExtraVolume{other}}), differs: []string{"kube-scheduler volume audit"}},
		"a volume that was":        {want: of(args()), was: of(node.Component{ExtraVolumes: []node.ExtraVolume{volume}}), differs: []string{"kube-scheduler volume audit"}},
		"the repository":           {want: &node.ControlPlane{ImageRepository: "mirror.example:5000/k8s"}},
		"another repository":       {want: &node.ControlPlane{ImageRepository: "mirror.example:5000"}, differs: []string{"kube-scheduler image"}},
		"a repository that was":    {want: &node.ControlPlane{}, was: &node.ControlPlane{ImageRepository: "mirror.example:5000/k8s"}, differs: []string{"kube-scheduler image"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.differs, differs(s.manifests[scheduler], scheduler, tc.want, tc.was))
		})
	}
	etcd := func(repository, tag string) *node.ControlPlane {
		return &node.ControlPlane{ImageRepository: "other.example", Etcd: &node.Component{ImageRepository: repository, ImageTag: tag}}
	}
	require.Empty(t, differs(s.manifests[etcdMember], etcdMember, etcd("registry.k8s.io", "3.6.8-0"), nil))
	require.NotEmpty(t, differs(s.manifests[etcdMember], etcdMember, etcd("", "3.6.8-0"), nil))
	require.NotEmpty(t, differs(s.manifests[etcdMember], etcdMember, etcd("registry.k8s.io", "3.6.9-0"), nil))
	require.NotEmpty(t, differs(nil, etcdMember, etcd("", ""), nil))
}

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"a":                               {"a", ""},
		"a:1":                             {"a", "1"},
		"host:5000/a":                     {"host:5000/a", ""},
		"host:5000/a:1@sha256:0123456789": {"host:5000/a", "1"},
		"host:5000/a@sha256:0123456789":   {"host:5000/a", ""},
	} {
		name, tag := splitImage(image)
		require.Equal(t, want, [2]string{name, tag}, image)
	}
	require.Equal(t, "3.6", minor("a:3.6.8-0"))
}
