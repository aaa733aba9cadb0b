package agent

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const flagsFile = "/var/lib/kubelet/kubeadm-flags.env"

// kubeadmNode returns a node whose kubelet is well as long as it is not told to have no pods.
func kubeadmNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.put(flagsFile, "KUBELET_KUBEADM_ARGS=\"--v=2\"\n")
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.content(flagsFile) == "KUBELET_KUBEADM_ARGS=\"--v=2 --max-pods=0\"\n" {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	require.NoError(t, err)
	n.put("/var/lib/kubelet/config.yaml", "healthzPort: "+at.Port()+"\n")
	return n
}

func kubeletRequest(token int64, maxPods string) node.Request {
	req := request(token)
	req.Rules.Domains = disruption.BuiltinRules().Domains
	req.Resources = append(req.Resources, node.Resource{Kubelet: &node.Kubelet{ExtraArgs: []node.Arg{{Name: "max-pods", Value: maxPods}}}})
	return req
}

func TestArgumentsOfTheKubelet(t *testing.T) {
	n := kubeadmNode(t)
	require.Equal(t, "changed kubelet arguments, then: restart kubelet.service", n.succeed(kubeletRequest(1, "9")).Message)
	require.Equal(t, "KUBELET_KUBEADM_ARGS=\"--v=2 --max-pods=9\"\n", n.content(flagsFile))
	require.Empty(t, n.plan(kubeletRequest(2, "9")).Changes)

	n.useClock(&staticpodtest.Impatient{Left: 5})
	status := n.fail(kubeletRequest(2, "0"))
	require.Contains(t, status.Message, "restart kubelet.service failed: the kubelet does not become healthy: http://127.0.0.1:")
	require.Contains(t, status.Message, "answers 500 Internal Server Error (see journalctl -u kubelet.service on the node)")
	require.True(t, status.RolledBack, "the kubelet is well again with what it had: %s", status.Message)
	require.Equal(t, "KUBELET_KUBEADM_ARGS=\"--v=2 --max-pods=9\"\n", n.content(flagsFile))

	n.put("/var/lib/kubelet/config.yaml", "healthzPort: 0\n")
	require.Equal(t, []string{"the kubelet was not asked for its health: its health endpoint is turned off (healthzPort: 0)"},
		n.succeed(kubeletRequest(3, "8")).Notes)
}

// TestAKubeletWhoseHealthEndpointARunTurnsOff has a run turn it off, and one turn it on again at a kubelet that is not well.
func TestAKubeletWhoseHealthEndpointARunTurnsOff(t *testing.T) {
	const extra = "/etc/default/kubelet"
	for name, by := range map[string]func(token int64, port string) node.Request{
		"by an argument": func(token int64, port string) node.Request {
			req := kubeletRequest(token, "9")
			req.Resources[0].Kubelet.ExtraArgs = append(req.Resources[0].Kubelet.ExtraArgs, node.Arg{Name: "healthz-port", Value: port})
			return req
		},
		"by its configuration": func(token int64, port string) node.Request {
			req := request(token, "/etc/kubernetes/kubelet.conf.d/a.conf", "healthzPort: "+port+"\n")
			req.Rules.Files = disruption.Table{{Path: "/etc/kubernetes/kubelet.conf.d", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service"}}}}
			return req
		},
		"by a file of arguments": func(token int64, port string) node.Request {
			req := request(token, extra, "KUBELET_EXTRA_ARGS=--healthz-port="+port+"\n")
			req.Rules.Files = disruption.Table{{Path: extra, Actions: []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service"}}}}
			return req
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := kubeadmNode(t)
			n.put(flagsFile, "KUBELET_KUBEADM_ARGS=\"--config-dir=/etc/kubernetes/kubelet.conf.d\"\n")
			n.put("/etc/kubernetes/kubelet.conf.d/0.conf", "{}")
			require.Contains(t, n.succeed(by(1, "0")).Notes, "the kubelet was not asked for its health: its health endpoint is turned off (healthzPort: 0)")
			n.useClock(&staticpodtest.Impatient{Left: 5})
			require.Contains(t, n.fail(by(2, "1")).Message, "nothing answers at http://127.0.0.1:1/healthz")
		})
	}
}

func TestStaticPodsAreWaitedFor(t *testing.T) {
	const manifest = "/etc/kubernetes/manifests/a.yaml"
	newNode := func(t *testing.T) (*testNode, *staticpodtest.Node) {
		s := staticpodtest.NewNode(t)
		n := layOut(t, s.Dir)
		n.put(manifest, staticpodtest.Pod("a", "a:1"))
		return n, s
	}
	refresh := []disruption.Action{{Type: disruption.StaticPodRefresh}}
	t.Run("until they are those of the new manifests", func(t *testing.T) {
		n, s := newNode(t)
		require.NoError(t, n.agent.state.create())
		require.NoError(t, n.agent.notePods(t.Context(), node.Plan{Actions: refresh}))
		n.put(manifest, staticpodtest.Pod("a", "a:2"))
		s.Set(func(s *staticpodtest.Node) { s.Lag, s.Down = 3, 2 })
		note, err := n.agent.act(t.Context(), refresh[0])
		require.NoError(t, err)
		require.Empty(t, note)
	})
	t.Run("and are not done before", func(t *testing.T) {
		n, s := newNode(t)
		require.NoError(t, n.agent.state.create())
		require.NoError(t, n.agent.notePods(t.Context(), node.Plan{Actions: refresh}))
		n.put(manifest, staticpodtest.Pod("a", "a:2"))
		s.Set(func(s *staticpodtest.Node) { s.Broken["a"] = true })
		n.useClock(&staticpodtest.Impatient{Left: 5})
		_, err := n.agent.act(t.Context(), refresh[0])
		require.ErrorContains(t, err, "static pod kube-system/a-cp-1 is not ready")
		n.useClock(testClock{})
		n.put(manifest, staticpodtest.Pod("a", "a:1"))
		_, err = n.agent.again(t.Context(), refresh[0])
		require.NoError(t, err, "it is as it was when the manifest is put back")
	})
	t.Run("whatever their hashes are, under a kubelet of another version", func(t *testing.T) {
		for _, changes := range [][]node.Change{nil, {{Ref: node.Ref{Kind: node.VersionKind}, Operation: node.Write}}} {
			n, _ := newNode(t)
			require.NoError(t, n.agent.state.create())
			require.NoError(t, n.agent.notePods(t.Context(), node.Plan{Actions: refresh, Changes: changes}))
			var noted staticpod.Note
			_, err := n.agent.state.load(podsFile, &noted)
			require.NoError(t, err)
			if was := noted[manifest]; changes == nil {
				was.Hash = "the other kubelet's"
				noted[manifest] = was
			}
			require.NoError(t, n.agent.state.save(podsFile, noted))
			n.useClock(&staticpodtest.Impatient{Left: 5})
			_, err = n.agent.act(t.Context(), refresh[0])
			if changes == nil {
				require.ErrorContains(t, err, "is not yet that of the manifest", "by its hash it is another")
				continue
			}
			require.NoError(t, err)
		}
	})
	t.Run("but not without a note", func(t *testing.T) {
		n, _ := newNode(t)
		_, err := n.agent.act(t.Context(), refresh[0])
		require.ErrorContains(t, err, "was not noted")
		require.NoError(t, n.agent.notePods(t.Context(), node.Plan{}), "and none is made where nothing is replaced")
	})
	t.Run("in a run", func(t *testing.T) {
		n, s := newNode(t)
		req := request(1, manifest, staticpodtest.Pod("a", "a:2"))
		require.Empty(t, n.plan(req).Blocked)
		s.Set(func(s *staticpodtest.Node) { s.Lag = 2 })
		require.Equal(t, "changed 1 file, then: StaticPodRefresh", n.succeed(req).Message)
		req = request(2, manifest, "kind: Pod")
		require.Contains(t, n.refuse(req, node.ReasonBlocked), "would not be a static pod")
	})
}
