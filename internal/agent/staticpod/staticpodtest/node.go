package staticpodtest

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// Name is that of the node.
const Name = "cp-1"

// Node is a directory that stands for a control-plane node, with its API server.
type Node struct {
	testing.TB
	hosttest.Files
	Host host.Host
	CA   *Authority
	// API answers for the cluster, and for the API server of the node.
	API *httptest.Server

	mu sync.Mutex
	// Config is kubeadm-config's ClusterConfiguration.
	Config string
	// Lag is how many more looks show the pods as they were; Down how many more requests are not answered.
	Lag, Down int
	// Broken pods never become ready once their manifest has changed, by name without that of the node.
	Broken map[string]bool
	// Answer, if it is set, may answer a request first.
	Answer func(w http.ResponseWriter, r *http.Request) bool
	// Containers, if it is set, returns the statuses of a pod's containers, by the pod's name without that of the node.
	Containers func(name string) []staticpod.ContainerStatus
	// Members is the list of members that etcd answers with, and DatabaseSize how many bytes it says that it has.
	Members, DatabaseSize string

	shown  map[string]staticpod.Manifest
	serves tls.Certificate
	first  map[string]string
}

// NewNode lays out a node. It has no manifests yet.
func NewNode(t testing.TB) *Node {
	t.Helper()
	n := &Node{TB: t, Files: hosttest.NewFiles(t, t.TempDir()), CA: NewAuthority(t), Broken: map[string]bool{}}
	root := host.Root{Dir: n.Dir, Private: filepath.Join(n.Dir, "var/lib/refit")}
	require.NoError(t, os.MkdirAll(root.Private, 0o700))
	n.Host = host.Host{Root: root, Disk: host.Disk{NoSync: true}, Clock: Clock{}}
	cert, key := n.CA.Issue("kube-apiserver", "kubernetes", "127.0.0.1")
	n.Put("/etc/kubernetes/pki/ca.crt", string(n.CA.PEM))
	n.Put("/etc/kubernetes/pki/ca.key", string(n.CA.KeyPEM))
	n.Put("/etc/kubernetes/pki/apiserver.crt", string(cert))
	n.Put("/etc/kubernetes/pki/apiserver.key", string(key))
	n.API = n.CA.Serve(http.HandlerFunc(n.serve), n.pair)
	cert, key = n.CA.Issue("system:node:" + Name)
	n.Put("/var/lib/kubelet/pki/kubelet-client-current.pem", string(cert)+string(key))
	pair := "    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n"
	n.Put(staticpod.KubeletConfig, n.kubeconfig(pair))
	cert, key = n.CA.Issue("kubernetes-admin")
	pair = fmt.Sprintf("    client-certificate-data: %s\n    client-key-data: %s\n",
		base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key))
	n.Put(staticpod.AdminConfig, n.kubeconfig(pair))
	n.Put("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests\n")
	return n
}

// pair is what the API server serves: it stays with the last one that fits together.
func (n *Node) pair() (tls.Certificate, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pair, err := tls.LoadX509KeyPair(n.Path("/etc/kubernetes/pki/apiserver.crt"), n.Path("/etc/kubernetes/pki/apiserver.key")); err == nil {
		n.serves = pair
	}
	return n.serves, nil
}

func (n *Node) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: it
contexts:
- name: it
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: u
  user:
%s`, n.API.URL, base64.StdEncoding.EncodeToString(n.CA.PEM), user)
}

// Put writes a file of the node, which only root may read.
func (n *Node) Put(p, content string) {
	n.Helper()
	n.PutMode(p, content, 0o600)
}

// Program puts a shell script in the place of one of the node's programs.
func (n *Node) Program(name, script string) {
	n.Helper()
	n.PutMode("/usr/bin/"+name, "#!/bin/sh\n"+script, 0o700)
}

// Set changes how the node behaves.
func (n *Node) Set(change func(*Node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *Node) serve(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.Answer != nil && n.Answer(w, r), n.Etcd(w, r):
	case n.Down > 0:
		n.Down--
		http.Error(w, "no", http.StatusServiceUnavailable)
	case r.TLS == nil || len(r.TLS.PeerCertificates) == 0:
		http.Error(w, "who are you", http.StatusUnauthorized)
	case r.URL.Path == "/readyz":
		_, _ = w.Write([]byte("ok"))
	case r.URL.Path == "/api/v1/namespaces/kube-system/configmaps/kubeadm-config":
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{"ClusterConfiguration": n.Config}})
	case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName="+Name:
		_ = json.NewEncoder(w).Encode(map[string]any{"items": n.mirrors()})
	default:
		http.NotFound(w, r)
	}
}

// mirrors are the pods that a kubelet would mirror.
func (n *Node) mirrors() []any {
	if n.Lag > 0 {
		n.Lag--
	} else {
		n.shown, _ = staticpod.List(n.Host.Root)
	}
	if n.first == nil {
		n.first = map[string]string{}
	}
	var items []any
	for _, m := range n.shown {
		name := m.Pod.Metadata.Name
		if n.first[name] == "" {
			n.first[name] = m.Digest
		}
		ready := "True"
		if n.Broken[name] && n.first[name] != m.Digest {
			ready = "False"
		}
		var containers []staticpod.ContainerStatus
		if n.Containers != nil {
			containers = n.Containers(name)
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{
				"name": name + "-" + Name, "namespace": m.Pod.Metadata.Namespace,
				"annotations": map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": m.Digest[:32]},
			},
			"status": map[string]any{"phase": "Running", "conditions": []any{map[string]string{"type": "Ready", "status": ready}},
				"containerStatuses": containers},
		})
	}
	return items
}

// Clock passes time by the millisecond.
type Clock struct{}

// Now implements host.Clock.
func (Clock) Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Wait implements host.Clock.
func (Clock) Wait(ctx context.Context, _ time.Duration) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Impatient is a Clock for which there is no time left after a while.
type Impatient struct{ Left int }

// Now implements host.Clock.
func (*Impatient) Now() time.Time { return Clock{}.Now() }

// Wait implements host.Clock.
func (c *Impatient) Wait(ctx context.Context, d time.Duration) error {
	if c.Left--; c.Left < 0 {
		return context.DeadlineExceeded
	}
	return Clock{}.Wait(ctx, d)
}

// Pod returns a manifest.
func Pod(name, image string, command ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: kube-system}\nspec:\n  containers:\n  - name: %s\n    image: %s\n    command: [%s]\n",
		name, name, image, strings.Join(command, ", "))
}
