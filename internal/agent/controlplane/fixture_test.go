package controlplane

import (
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
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
"init phase certs etcd-server --config="*|"init phase certs etcd-peer --config="*)
	name=${4#etcd-}
	dir=$(sed -n 's/^certificatesDir: //p' $REFIT_ROOT${5#--config=})
	[ "$(readlink $REFIT_ROOT$dir/etcd/ca.key)" = /etc/kubernetes/pki/etcd/ca.key ]
	if [ -e $REFIT_ROOT/fail-certs ]; then echo "error: no" >&2; exit 1; fi
	cp $REFIT_ROOT/next/$name.crt $REFIT_ROOT/next/$name.key $REFIT_ROOT$dir/etcd/;;
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
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{Node: staticpodtest.NewNode(t)}
	x.kind = New(x.Host)
	x.kind.space = func(string) (host.Space, error) { return host.Space{Free: 1 << 40}, nil }
	x.Program("kubeadm", kubeadm)
	require.NoError(t, os.MkdirAll(x.Path("/next"), 0o755))
	x.Config = config
	x.WithEtcd()
	for _, name := range pods {
		x.Put(manifestPath(name), x.manifest(name))
	}
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

func etcdTag(tag string) func(c *node.ControlPlane) {
	return func(c *node.ControlPlane) { c.Etcd.ImageTag = tag }
}

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
