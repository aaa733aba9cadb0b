package version

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	oldVersion = "v1.36.1"
	newVersion = "v1.36.3"
	nextMinor  = "v1.37.0"
)

// kubeadmScript stands in for kubeadm of a version. On a control plane it replaces manifests as kubeadm does, the old one moved away before
// the new one is moved in; then it writes the kubelet's configuration. One that keeps the address of the container runtime in a file of its
// own takes it from the arguments first. It dies when no steps are left.
const kubeadmScript = `#!/bin/sh
version=%s
step() { [ -e $REFIT_ROOT/steps ] || return 0; n=$(cat $REFIT_ROOT/steps); echo $((n-1)) > $REFIT_ROOT/steps; [ $n -gt 0 ] || kill -9 $$; }
m=$REFIT_ROOT/etc/kubernetes/manifests
case "$*" in
"version -o short") echo $version; exit 0;;
"config images list --kubernetes-version "*)
	echo "registry.k8s.io/kube-apiserver:$5"; echo "registry.k8s.io/etcd:$(cat $REFIT_ROOT/etcd-tag)"; exit 0;;
"upgrade node --help") cat $REFIT_ROOT/help; exit 0;;
esac
echo "$*" >> $REFIT_ROOT/calls
env | grep -i _proxy >> $REFIT_ROOT/calls
step
if [ -e $REFIT_ROOT/fail-before ]; then echo "error: timed out, token abcdef.0123456789abcdef" >&2; exit 1; fi
for f in $REFIT_ROOT/next/*.yaml; do
	[ -e "$f" ] || continue
	case "$f $*" in */etcd.yaml*--etcd-upgrade=false*) continue;; esac
	[ -e $m/$(basename $f) ] || exit 1
	mv $m/$(basename $f) $REFIT_ROOT/moved-away
	step
	cp $f $m/$(basename $f)
	step
	if [ -e $REFIT_ROOT/fail-within ]; then exit 1; fi
done
f=$REFIT_ROOT/var/lib/kubelet/kubeadm-flags.env
i=$REFIT_ROOT/var/lib/kubelet/instance-config.yaml
if [ -e $REFIT_ROOT/moves-endpoint ] && [ ! -e $i ]; then
	step
	at=$(sed -n 's/.*--container-runtime-endpoint=\([^ "]*\).*/\1/p' $f)
	[ -z "$at" ] || sed -i 's/ *--container-runtime-endpoint=[^ "]*//' $f
	step
	echo "containerRuntimeEndpoint: \"$at\"" > $i
	step
fi
cat $REFIT_ROOT/next/config >> $REFIT_ROOT/var/lib/kubelet/config.yaml
step
`

const helpWithAddons = "The \"node\" command executes the following phases:\n```\npreflight       Run checks\naddon           Upgrade the addons\n  /coredns      Upgrade one\n```\n"

// world is a node with what is around it.
type world struct {
	*staticpodtest.Node
	kind     *Kind
	releases *releases
	clock    *clock

	mu sync.Mutex
	// reported is the kubelet that the Node tells of, serves the version of the cluster's API server.
	reported, serves string
	// broken are versions of the kubelet that don't come up.
	broken map[string]bool
	// up reports whether a kubelet runs, ready whether its Node is Ready.
	up, ready  bool
	invocation int
	calls      []string
	// silent has the API server not answer about Nodes.
	silent bool
}

// sickMember is one of etcd's that has not been started.
const sickMember = `{"name":"c","isLearner":false}`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Node: staticpodtest.NewNode(t), clock: &clock{ahead: -10 * time.Minute}, reported: oldVersion, serves: newVersion,
		broken: map[string]bool{}, up: true, ready: true,
	}
	w.releases = &releases{w: w}
	w.Answer = w.answer
	health := httptest.NewServer(http.HandlerFunc(w.healthz))
	t.Cleanup(health.Close)
	at, err := url.Parse(health.URL)
	require.NoError(t, err)
	w.Put(kubelet.ConfigFile, "staticPodPath: /etc/kubernetes/manifests\nhealthzPort: "+at.Port()+"\n")
	w.Put(kubelet.FlagsFile, "KUBELET_KUBEADM_ARGS=\"--v=2\"\n")
	for _, v := range []string{oldVersion, newVersion, nextMinor} {
		w.Put("/releases/"+v+"/kubelet", "#!/bin/sh\necho Kubernetes "+v+"\n")
		w.Put("/releases/"+v+"/kubectl", "#!/bin/sh\necho Client Version: "+v+"\n")
		w.PutMode("/releases/"+v+"/kubeadm", fmt.Sprintf(kubeadmScript, v), 0o700)
	}
	w.Put("/help", helpWithAddons)
	w.Put("/etcd-tag", "3.6.8-0")
	w.Put("/next/config", "# made by kubeadm\n")
	_, err = w.releases.Install(t.Context(), oldVersion, release.Programs...)
	require.NoError(t, err)
	w.releases.calls = nil
	h := w.Host
	h.Clock, h.Units = w.clock, w
	w.kind = New(h, w.releases)
	return w
}

// newControlPlane is a world whose node is a control plane with etcd, for which kubeadm has the manifests of a version.
func newControlPlane(t *testing.T, version string) *world {
	t.Helper()
	w := newWorld(t)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		w.Put("/etc/kubernetes/manifests/"+name+".yaml", w.manifest(name, oldVersion))
		w.Put("/next/"+name+".yaml", w.manifest(name, version))
	}
	w.WithEtcd()
	w.configure(version)
	return w
}

// configure writes kubeadm-config as Cluster API's control plane provider does.
func (w *world) configure(version string) {
	w.Set(func(n *staticpodtest.Node) {
		n.Config = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + version +
			"\nimageRepository: registry.k8s.io\netcd: {local: {dataDir: /var/lib/etcd}}\n"
	})
}

func (w *world) manifest(name, version string) string {
	at, err := url.Parse(w.API.URL)
	require.NoError(w, err)
	image, command := "registry.k8s.io/"+name+":"+version, []string{name}
	switch name {
	case "kube-apiserver":
		command = append(command, "--advertise-address=127.0.0.1", "--secure-port="+at.Port(), "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt")
	case "etcd":
		image = "registry.k8s.io/etcd:3.6.8-0"
		command = append(command, `"--listen-client-urls=`+w.API.URL+`"`, "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt")
	}
	return staticpodtest.Pod(name, image, command...)
}

func (w *world) healthz(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.up {
		http.Error(rw, "no", http.StatusServiceUnavailable)
	}
}

// answer stands in for what the API server and etcd say.
func (w *world) answer(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.URL.Path {
	case "/version":
		_, _ = io.WriteString(rw, `{"gitVersion":"`+w.serves+`"}`)
	case "/api/v1/nodes/" + staticpodtest.Name:
		if w.silent {
			http.Error(rw, "no", http.StatusServiceUnavailable)
			return true
		}
		status := map[bool]string{true: "True", false: "False"}[w.ready]
		_, _ = fmt.Fprintf(rw, `{"status":{"nodeInfo":{"kubeletVersion":%q},"conditions":[{"type":"Ready","status":%q}]}}`, w.reported, status)
	case "/api/v1/pods":
		_ = json.NewEncoder(rw).Encode(map[string]any{"items": w.mirrors()})
	default:
		return false
	}
	return true
}

// mirrors are the pods as a kubelet mirrors them. Its hash of a manifest is another one with each minor version, as it can be.
func (w *world) mirrors() []any {
	manifests, err := staticpod.List(w.Host.Root)
	require.NoError(w, err)
	var items []any
	for _, m := range manifests {
		hash := sha256.Sum256([]byte(m.Digest + strings.Join(strings.Split(w.reported, ".")[:2], ".")))
		items = append(items, map[string]any{
			"metadata": map[string]any{
				"name": m.Pod.Metadata.Name + "-" + staticpodtest.Name, "namespace": m.Pod.Metadata.Namespace,
				"annotations": map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hex.EncodeToString(hash[:16])},
			},
			"status": map[string]any{"phase": "Running", "conditions": []any{map[string]string{"type": "Ready", "status": "True"}}},
		})
	}
	return items
}

func spec(version string) *node.Resource {
	return &node.Resource{Version: &node.Version{Kubernetes: version}}
}

func (w *world) question(was, want string) kind.Question {
	q := kind.Question{Desired: spec(want), Rules: disruption.BuiltinRules(), Source: &node.Source{Name: "s", Version: want}}
	if was != "" {
		q.Was, q.Known = spec(was), true
	}
	return q
}

func (w *world) ask(was, want string) kind.Answer {
	w.Helper()
	a, err := w.kind.Plan(w.Context(), w.question(was, want))
	require.NoError(w, err)
	return a
}

func (w *world) change(want string) kind.Change {
	w.Helper()
	a := w.ask(oldVersion, want)
	require.Empty(w, a.Blocked)
	require.Empty(w, a.Stage)
	require.Equal(w, node.Write, a.Operation)
	return kind.Change{Was: spec(oldVersion), Desired: spec(want), Before: a.Before}
}

// programs returns the versions of what is installed.
func (w *world) programs() [2]string {
	return [2]string{w.kind.installedKubelet(w.Context()), w.kind.installedKubeadm(w.Context())}
}

// runs returns the kubelet that runs, or "" if none does.
func (w *world) runs() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.up {
		return ""
	}
	return w.reported
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}
