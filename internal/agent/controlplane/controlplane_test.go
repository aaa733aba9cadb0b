package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// kubeadm does what the tests have laid out in /next, and notes how it was called and what it was given.
const kubeadm = `
set -e
echo "$*" >> $REFIT_ROOT/calls
env | grep -i _proxy >> $REFIT_ROOT/calls || true
case "$*" in
"upgrade node phase control-plane "*)
	if [ -e $REFIT_ROOT/fail-before ]; then echo "error: timed out" >&2; exit 1; fi
	for f in $REFIT_ROOT/next/*.yaml; do
		[ -e "$f" ] || continue
		case "$f $*" in */etcd.yaml*--etcd-upgrade=false*) continue;; esac
		cp $f $REFIT_ROOT/etc/kubernetes/manifests/$(basename $f)
		if [ -e $REFIT_ROOT/fail-within ]; then rm -f $REFIT_ROOT/etc/kubernetes/manifests/kube-scheduler.yaml; exit 1; fi
	done;;
"init phase certs apiserver --config="*)
	config=${5#--config=}
	cat $REFIT_ROOT$config > $REFIT_ROOT/kubeadm.yaml
	dir=$(sed -n 's/^certificatesDir: //p' $REFIT_ROOT/kubeadm.yaml)
	[ "$(readlink $REFIT_ROOT$dir/ca.key)" = /etc/kubernetes/pki/ca.key ]
	cp $REFIT_ROOT/next/apiserver.crt $REFIT_ROOT/next/apiserver.key $REFIT_ROOT$dir/;;
*) exit 2;;
esac
`

const config = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.1
imageRepository: registry.k8s.io
certificatesDir: /etc/kubernetes/pki
controlPlaneEndpoint: example.com:6443
`

type fixture struct {
	*staticpodtest.Node
	kind *Kind
	// etcds is the list of members that etcd answers with.
	etcds string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{Node: staticpodtest.NewNode(t)}
	x.kind = New(x.Host)
	x.kind.free = func(string) (uint64, error) { return 1 << 40, nil }
	x.Program("kubeadm", kubeadm)
	require.NoError(t, os.MkdirAll(x.Path("/next"), 0o755))
	x.Config = config
	cert, key := x.CA.Issue("kube-etcd-healthcheck-client")
	x.Put("/etc/kubernetes/pki/etcd/ca.crt", string(x.CA.PEM))
	x.Put("/etc/kubernetes/pki/etcd/healthcheck-client.crt", string(cert))
	x.Put("/etc/kubernetes/pki/etcd/healthcheck-client.key", string(key))
	for _, name := range pods {
		x.Put(manifestPath(name), x.manifest(name))
	}
	x.etcds = `{"name":"a"},{"name":"b"},{"name":"c"}`
	x.Answer = x.etcd
	return x
}

// manifest returns one as kubeadm writes it, with more arguments.
func (x *fixture) manifest(name string, args ...string) string {
	at, err := url.Parse(x.API.URL)
	require.NoError(x, err)
	image := "registry.k8s.io/" + name + ":v1.36.1"
	command := []string{name}
	switch name {
	case apiServer:
		command = append(command, "--advertise-address=127.0.0.1", "--secure-port="+at.Port(),
			"--tls-cert-file=/etc/kubernetes/pki/apiserver.crt", "--tls-private-key-file=/etc/kubernetes/pki/apiserver.key")
	case etcdMember:
		image = "registry.k8s.io/etcd:3.6.8-0"
		command = append(command, `"--listen-client-urls=https://10.0.0.1:2379,`+x.API.URL+`"`, "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt")
	}
	return staticpodtest.Pod(name, image, append(command, args...)...)
}

// etcd answers in the place of etcd's gateway, and of the health of each member.
func (x *fixture) etcd(w http.ResponseWriter, r *http.Request) bool {
	database := bytes.Repeat([]byte("etcd"), 4096)
	digest := sha256.Sum256(database)
	switch r.URL.Path {
	case "/v3/cluster/member/list":
		_, _ = io.WriteString(w, `{"members":[`+strings.ReplaceAll(x.etcds, `"}`, `","clientURLs":["`+x.API.URL+`"]}`)+`]}`)
	case "/v3/maintenance/status":
		_, _ = io.WriteString(w, `{"dbSize":"16384"}`)
	case "/v3/maintenance/snapshot":
		_ = json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"blob": database}})
		_ = json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"blob": digest[:]}})
	case "/health":
		_, _ = io.WriteString(w, `{"health":"true"}`)
	default:
		return false
	}
	return true
}

// spec returns what the specs want; change is given an empty one with etcd.
func spec(change func(c *node.ControlPlane)) *node.Resource {
	c := &node.ControlPlane{Etcd: &node.Component{}}
	if change != nil {
		change(c)
	}
	return &node.Resource{ControlPlane: c}
}

func arg(c *node.Component, name, value string) {
	c.ExtraArgs = append(c.ExtraArgs, node.Arg{Name: name, Value: value})
}

func audit(c *node.ControlPlane) { arg(&c.APIServer, "audit-log-path", "/var/log/audit") }

func quota(c *node.ControlPlane) { arg(c.Etcd, "quota-backend-bytes", "8589934592") }

const (
	auditConfig = config + "apiServer:\n  extraArgs:\n  - {name: audit-log-path, value: /var/log/audit}\n"
	quotaConfig = config + "etcd:\n  local:\n    dataDir: /var/lib/etcd\n    extraArgs:\n    - {name: quota-backend-bytes, value: \"8589934592\"}\n"
	etcdConfig  = "etcd: {local: {dataDir: /var/lib/etcd}}\n"
)

func (x *fixture) ask(was, want *node.Resource) kind.Answer {
	x.Helper()
	a, err := x.kind.Plan(x.Context(), kind.Question{Was: was, Known: was != nil, Desired: want, Rules: disruption.BuiltinRules()})
	require.NoError(x, err)
	return a
}

func (x *fixture) change(was, want *node.Resource) kind.Change {
	x.Helper()
	a := x.ask(was, want)
	require.Empty(x, a.Blocked)
	require.Equal(x, node.Write, a.Operation)
	require.Equal(x, []disruption.Action{{Type: disruption.StaticPodRefresh}}, a.Actions)
	return kind.Change{Was: was, Desired: want, Before: a.Before}
}

func (x *fixture) calls() string {
	if c := x.Get("/calls"); c != "(missing)" {
		return c
	}
	return ""
}

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
		"etcd without":                              {was: spec(nil), want: spec(quota), config: quotaConfig, prepare: func(x *fixture) { x.etcds = `{"name":"a"}` }, blocked: "no member to spare"},
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

	x.Set(func(*staticpodtest.Node) { x.etcds = `{"name":"a"},{"name":"b"}` })
	_, err := x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "no member to spare", "it is asked again before it is touched")
	x.Set(func(*staticpodtest.Node) { x.etcds = `{"name":"a"},{"name":"b"},{"name":"c"}` })
	x.kind.free = func(string) (uint64, error) { return 0, nil }
	_, err = x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "make room")
	require.Empty(t, x.calls())

	x.kind.free = func(string) (uint64, error) { return 1 << 40, nil }
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
		require.Equal(t, "init phase certs apiserver --config=/var/lib/refit/apiserver-certificate/kubeadm.yaml\n", x.calls(), "once, and no manifest is made anew")
		given := x.Get("/kubeadm.yaml")
		for _, line := range []string{
			"certificatesDir: /var/lib/refit/apiserver-certificate", "controlPlaneEndpoint: example.com:6443", "kind: InitConfiguration",
			"name: cp-1", "advertiseAddress: 127.0.0.1", "kubernetesVersion: v1.36.1",
		} {
			require.Contains(t, given, line)
		}
		require.NoDirExists(t, x.Path("/var/lib/refit/apiserver-certificate"))
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
		require.NoDirExists(t, x.Path("/var/lib/refit/apiserver-certificate"))
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
