package admin

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestFindMachine(t *testing.T) {
	w := newWorld(t, machine("a"), machine("b"), machine("c", func(m *clusterv1.Machine) {
		m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel], m.Status.NodeRef.Name = "test", "test", "node-b"
	}), machine("d", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "d" }),
		machine("a", func(m *clusterv1.Machine) { m.Namespace = "other" }))
	for name, c := range map[string]struct {
		ask, found, says string
		scope            Scope
	}{
		"by name":                  {ask: "b", found: "fleet/b"},
		"by node":                  {ask: "node-b", scope: Scope{Cluster: "prod"}, found: "fleet/b"},
		"by both":                  {ask: "d", found: "fleet/d"},
		"in a namespace":           {ask: "a", scope: Scope{Namespace: "other"}, found: "other/a"},
		"a node of two clusters":   {ask: "node-b", says: `"node-b" can be Machine fleet/b of cluster prod, or Machine fleet/c of cluster test; say which with --namespace or --cluster`},
		"a name in two namespaces": {ask: "a", says: `"a" can be Machine fleet/a of cluster prod, or Machine other/a of cluster prod`},
		"none":                     {ask: "x", scope: Scope{Namespace: "fleet", Cluster: "prod"}, says: `there is no Machine in namespace fleet and cluster prod that is named "x" or whose node is`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := FindMachine(t.Context(), w, c.ask, c.scope)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.found, client.ObjectKeyFromObject(m).String())
		})
	}
}

func TestWho(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		given, fallback, who, says string
		fails                      bool
	}{
		"given":             {given: "bob", who: "bob"},
		"by the API server": {fallback: "carol", who: "oidc:alice"},
		"by $USER":          {fallback: "car\x1bol", who: "carol", fails: true},
		"a long name":       {fallback: strings.Repeat("ä", 99), who: strings.Repeat("ä", 50), fails: true},
		"nobody":            {fails: true, says: "say it with --as-admin"},
		"a bad name":        {given: "a\nb", says: "characters that are not printed"},
		"too long":          {given: strings.Repeat("a", 101), says: "more than 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			w.fail = nil
			if c.fails {
				w.fail = func(string, client.Object) error { return errors.New("not served") }
			}
			who, err := Who(t.Context(), w, c.given, c.fallback)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.who, who)
		})
	}
}

const someKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://HOST:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: planted-secret}}]
current-context: c
`

func TestWorkloadConfig(t *testing.T) {
	secret := func(name, data string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}, Data: map[string][]byte{"value": []byte(data)}}
	}
	edit := func(from, to string) string { return strings.Replace(someKubeconfig, from, to, 1) }
	for name, c := range map[string]struct {
		secrets    []client.Object
		host, says string
	}{
		"refit's own":         {secrets: []client.Object{secret("prod-refit-kubeconfig", edit("HOST", "refit")), secret("prod-kubeconfig", edit("HOST", "capi"))}, host: "https://refit:6443"},
		"Cluster API's":       {secrets: []client.Object{secret("prod-kubeconfig", edit("HOST", "capi"))}, host: "https://capi:6443"},
		"none":                {says: "there is no kubeconfig: no Secret prod-refit-kubeconfig or prod-kubeconfig is in namespace fleet"},
		"empty":               {secrets: []client.Object{secret("prod-kubeconfig", "")}, says: `Secret fleet/prod-kubeconfig: there is no kubeconfig`},
		"no kubeconfig":       {secrets: []client.Object{secret("prod-kubeconfig", "{planted-secret")}, says: "it can't be read"},
		"no context":          {secrets: []client.Object{secret("prod-kubeconfig", edit("current-context: c", "current-context: d"))}, says: "current context"},
		"a program":           {secrets: []client.Object{secret("prod-kubeconfig", edit("token: planted-secret", "exec: {command: planted-secret, apiVersion: client.authentication.k8s.io/v1}"))}, says: "runs a program"},
		"a file with a token": {secrets: []client.Object{secret("prod-kubeconfig", edit("token:", "tokenFile:"))}, says: "files of credentials"},
		"a file with a CA":    {secrets: []client.Object{secret("prod-kubeconfig", edit(`6443"`, `6443", certificate-authority: planted-secret`))}, says: "a file of authorities"},
		"no verification":     {secrets: []client.Object{secret("prod-kubeconfig", edit(`6443"`, `6443", insecure-skip-tls-verify: true`))}, says: "insecure-skip-tls-verify"},
		"no encryption":       {secrets: []client.Object{secret("prod-kubeconfig", edit("https:", "http:"))}, says: "not reached by https"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := WorkloadConfig(t.Context(), newWorld(t, c.secrets...), types.NamespacedName{Namespace: "fleet", Name: "prod"})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "planted-secret")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.host, cfg.Host)
		})
	}
	w := newWorld(t)
	w.fail = func(string, client.Object) error { return errors.New("forbidden") }
	_, err := WorkloadConfig(t.Context(), w, types.NamespacedName{Namespace: "fleet", Name: "prod"})
	require.ErrorContains(t, err, "read Secret fleet/prod-refit-kubeconfig: forbidden")
}
