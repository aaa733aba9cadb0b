package staticpod_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

const a, b = staticpod.Dir + "/a.yaml", staticpod.Dir + "/b.yaml"

func newNode(t *testing.T) (*staticpodtest.Node, staticpod.Note) {
	t.Helper()
	n := staticpodtest.NewNode(t)
	n.Put(a, staticpodtest.Pod("a", "a:1"))
	n.Put(b, staticpodtest.Pod("b", "b:1"))
	note, err := staticpod.Observe(t.Context(), n.Host)
	require.NoError(t, err)
	require.Len(t, note, 2)
	require.Equal(t, "kube-system/a-cp-1", note[a].Pod)
	require.True(t, note[a].Ready)
	return n, note
}

func TestAwait(t *testing.T) {
	const c = staticpod.Dir + "/c.yaml"
	for name, tc := range map[string]struct {
		change func(n *staticpodtest.Node)
		// lacks is what is said when it never comes about. Empty: it does.
		lacks string
	}{
		"nothing was changed": {change: func(*staticpodtest.Node) {}},
		"the pod of the new manifest comes after a while": {change: func(n *staticpodtest.Node) {
			n.Put(a, staticpodtest.Pod("a", "a:2"))
			n.Lag = 3
		}},
		"the API server is away for a while": {change: func(n *staticpodtest.Node) {
			n.Put(a, staticpodtest.Pod("a", "a:2"))
			n.Down = 3
		}},
		"a comment is no change": {change: func(n *staticpodtest.Node) { n.Put(a, "# mine\n"+staticpodtest.Pod("a", "a:1")) }},
		"a new pod":              {change: func(n *staticpodtest.Node) { n.Put(c, staticpodtest.Pod("c", "c:1")) }},
		"a removed one":          {change: func(n *staticpodtest.Node) { require.NoError(n, os.Remove(n.Path(a))) }},
		"one under another name": {change: func(n *staticpodtest.Node) { n.Put(a, staticpodtest.Pod("z", "a:1")) }},
		"the old pod runs on": {
			change: func(n *staticpodtest.Node) { n.Put(a, staticpodtest.Pod("a", "a:2")); n.Lag = 1 << 30 },
			lacks:  "static pod kube-system/a-cp-1 is still that of the old manifest",
		},
		"the removed pod runs on": {
			change: func(n *staticpodtest.Node) { require.NoError(n, os.Remove(n.Path(a))); n.Lag = 1 << 30 },
			lacks:  "static pod kube-system/a-cp-1 still runs, although its manifest is gone",
		},
		"the new pod does not come": {
			change: func(n *staticpodtest.Node) { n.Put(c, staticpodtest.Pod("c", "c:1")); n.Lag = 1 << 30 },
			lacks:  "static pod kube-system/c-cp-1 is not there",
		},
		"the new pod is never ready": {
			change: func(n *staticpodtest.Node) { n.Put(a, staticpodtest.Pod("a", "a:2")); n.Broken["a"] = true },
			lacks:  "static pod kube-system/a-cp-1 is not ready",
		},
		"the API server stays away": {
			change: func(n *staticpodtest.Node) { n.Down = 1 << 30 },
			lacks:  "503",
		},
		"the kubelet looks elsewhere": {
			change: func(n *staticpodtest.Node) { n.Put("/var/lib/kubelet/config.yaml", "staticPodPath: /other\n") },
			lacks:  "does not look for static pods in /etc/kubernetes/manifests",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, note := newNode(t)
			n.Set(tc.change)
			n.Host.Clock = &staticpodtest.Impatient{Left: 10}
			err := staticpod.Await(t.Context(), n.Host, note)
			if tc.lacks != "" {
				require.ErrorContains(t, err, tc.lacks)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestAwaitAfterWhatWasPutBack(t *testing.T) {
	n, note := newNode(t)
	n.Put(a, staticpodtest.Pod("a", "a:2"))
	require.NoError(t, staticpod.Await(t.Context(), n.Host, note))
	n.Set(func(n *staticpodtest.Node) { n.Put(a, staticpodtest.Pod("a", "a:1")); n.Lag = 1 << 30 })
	n.Host.Clock = &staticpodtest.Impatient{Left: 5}
	require.ErrorContains(t, staticpod.Await(t.Context(), n.Host, note), "is not yet that of the manifest which was put back")
	n.Set(func(n *staticpodtest.Node) { n.Lag = 0 })
	n.Host.Clock = staticpodtest.Clock{}
	require.NoError(t, staticpod.Await(t.Context(), n.Host, note))
}

func TestObserveWaitsForTheAPIServer(t *testing.T) {
	n, _ := newNode(t)
	n.Set(func(n *staticpodtest.Node) { n.Down = 2 })
	_, err := staticpod.Observe(t.Context(), n.Host)
	require.NoError(t, err)
	n.Set(func(n *staticpodtest.Node) { n.Down = 1 << 30 })
	n.Host.Clock = &staticpodtest.Impatient{Left: 5}
	_, err = staticpod.Observe(t.Context(), n.Host)
	require.ErrorContains(t, err, "the API server answers 503")
}

func TestPodsOfOtherSourcesAreNotLookedAt(t *testing.T) {
	n := staticpodtest.NewNode(t)
	n.Put(a, staticpodtest.Pod("a", "a:1"))
	n.Set(func(n *staticpodtest.Node) {
		n.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"a-cp-1","namespace":"kube-system","annotations":{"kubernetes.io/config.source":"api"}}}]}`))
			return true
		}
	})
	note, err := staticpod.Observe(t.Context(), n.Host)
	require.NoError(t, err)
	require.Empty(t, note[a].Hash)
	require.NoError(t, staticpod.Await(t.Context(), n.Host, note), "what did not run before and is the same needs not run now")
}

func TestCheck(t *testing.T) {
	good := staticpodtest.Pod("a", "a:1")
	for name, tc := range map[string]struct{ path, content, fails string }{
		"a pod":                  {path: a, content: good},
		"a pod in JSON":          {path: a, content: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a"}]}}`},
		"elsewhere":              {path: "/etc/kubernetes/other", content: "x"},
		"below, not in":          {path: staticpod.Dir + "/x/y", content: "x"},
		"a name with a dot":      {path: staticpod.Dir + "/.x", content: "x"},
		"not YAML":               {path: a, content: "\t- {", fails: "it is not YAML"},
		"a list":                 {path: a, content: "- a", fails: "it is not YAML"},
		"nothing":                {path: a, content: "", fails: "kind Pod"},
		"another kind":           {path: a, content: "apiVersion: v1\nkind: Secret\nmetadata: {name: a}", fails: "kind Pod"},
		"no name":                {path: a, content: "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a}]}", fails: "metadata.name"},
		"no containers":          {path: a, content: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}", fails: "containers"},
		"fields of another form": {path: a, content: "apiVersion: v1\nkind: Pod\nmetadata: secret-value", fails: "fields"},
	} {
		t.Run(name, func(t *testing.T) {
			err := staticpod.Check(tc.path, []byte(tc.content))
			if tc.fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.fails)
			require.NotContains(t, err.Error(), "secret-value")
		})
	}
}

func TestConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(n *staticpodtest.Node)
		fails string
	}{
		"a kubeconfig that is missing": {func(n *staticpodtest.Node) { require.NoError(n, os.Remove(n.Path(staticpod.KubeletConfig))) }, "it is missing"},
		"one that is none":             {func(n *staticpodtest.Node) { n.Put(staticpod.KubeletConfig, "- a") }, "it is not a kubeconfig"},
		"no current context":           {func(n *staticpodtest.Node) { n.Put(staticpod.KubeletConfig, "{}") }, "its current context has no server"},
		"a certificate that is gone": {func(n *staticpodtest.Node) {
			require.NoError(n, os.Remove(n.Path("/var/lib/kubelet/pki/kubelet-client-current.pem")))
		}, "no certificate with a key"},
	} {
		t.Run(name, func(t *testing.T) {
			n := staticpodtest.NewNode(t)
			tc.spoil(n)
			_, err := staticpod.Connect(n.Host.Root, staticpod.KubeletConfig)
			require.ErrorContains(t, err, tc.fails)
			require.ErrorContains(t, err, staticpod.KubeletConfig)
		})
	}
	n := staticpodtest.NewNode(t)
	c, err := staticpod.Connect(n.Host.Root, staticpod.AdminConfig)
	require.NoError(t, err)
	_, err = c.NodeName()
	require.ErrorContains(t, err, "not that of a node")
	require.ErrorContains(t, c.Get(t.Context(), "/nowhere", nil, nil), "404")
	other := staticpodtest.NewAuthority(t)
	n.Put("/etc/kubernetes/pki/apiserver.crt", "")
	cert, key := other.Issue("kube-apiserver", "kubernetes", "127.0.0.1")
	n.Put("/etc/kubernetes/pki/apiserver.crt", string(cert))
	n.Put("/etc/kubernetes/pki/apiserver.key", string(key))
	require.ErrorContains(t, c.Get(t.Context(), "/readyz", nil, nil), "does not answer", "a server of another authority is not spoken to")
}
