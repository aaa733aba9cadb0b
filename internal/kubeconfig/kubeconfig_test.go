package kubeconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

// full has what a kubeconfig may say, and contexts and extensions beside.
const full = `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: https://prod.example.org:6443
    tls-server-name: kubernetes
    proxy-url: http://proxy.example.org:3128
    certificate-authority-data: YXV0aG9yaXR5
    disable-compression: true
- name: other
  cluster: {server: https://planted-other.example.org}
users:
- name: u
  user:
    token: a-token
    as: somebody
    as-groups: [people]
    as-uid: "1"
    as-user-extra: {why: [because]}
- name: basic
  user: {username: me, password: planted-password}
contexts:
- {name: x, context: {cluster: c, user: u, namespace: planted-namespace}}
- {name: z, context: {cluster: other, user: basic}}
current-context: x
preferences: {colors: true}
`

func TestParse(t *testing.T) {
	cfg, err := Parse([]byte(full))
	require.NoError(t, err)
	require.Equal(t, "https://prod.example.org:6443", cfg.Host)
	require.Equal(t, "a-token", cfg.BearerToken)
	require.Empty(t, cfg.BearerTokenFile)
	require.Equal(t, "kubernetes", cfg.ServerName)
	require.Equal(t, "authority", string(cfg.CAData))
	require.True(t, cfg.DisableCompression)
	require.Equal(t, "somebody", cfg.Impersonate.UserName)
	require.Equal(t, []string{"people"}, cfg.Impersonate.Groups)
	require.Equal(t, "1", cfg.Impersonate.UID)
	require.Equal(t, map[string][]string{"why": {"because"}}, cfg.Impersonate.Extra)
	proxy, err := cfg.Proxy(nil)
	require.NoError(t, err)
	require.Equal(t, "proxy.example.org:3128", proxy.Host)

	cfg, err = Parse([]byte(strings.Replace(full, "current-context: x", "current-context: z", 1)))
	require.NoError(t, err)
	require.Equal(t, "me", cfg.Username)
	require.Equal(t, "planted-password", cfg.Password)
}

// What another library makes of what is left is the same, and what is not the current context's is gone.
func TestContained(t *testing.T) {
	contained, err := Contained([]byte(full))
	require.NoError(t, err)
	require.NotContains(t, string(contained), "planted")
	want, err := Parse([]byte(full))
	require.NoError(t, err)
	got, err := clientcmd.RESTConfigFromKubeConfig(contained)
	require.NoError(t, err)
	want.Proxy, got.Proxy = nil, nil // functions
	require.Equal(t, want, got)
}

func TestRefused(t *testing.T) {
	edit := func(from, to string) string {
		require.Contains(t, full, from)
		return strings.Replace(full, from, to, 1)
	}
	for name, tt := range map[string]struct{ data, says string }{
		"a file that another context names":    {edit("username: me", "tokenFile: /planted/token"), "files of credentials"},
		"a program that another context names": {edit("username: me, password: planted-password", "exec: {command: planted, apiVersion: client.authentication.k8s.io/v1}"), "runs a program"},
		"a context that is not there":          {edit("current-context: x", "current-context: planted"), "current context"},
		"a cluster that is not there":          {edit("cluster: c, user: u", "cluster: planted, user: u"), "current context"},
		"a user that is not there":             {edit("cluster: c, user: u", "cluster: c, user: planted"), "current context"},
		"a server that is none":                {edit("https://prod.example.org:6443", "unix:///planted"), "not reached by https"},
		"a list":                               {"[planted]", "can't be read as a kubeconfig"},
		"nothing":                              {"", "there is no kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tt.data))
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "planted")
			_, other := Contained([]byte(tt.data))
			require.Equal(t, err, other)
		})
	}
}
