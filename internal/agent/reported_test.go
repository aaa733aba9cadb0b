package agent

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

// TestAReadyOfBeforeDoesNotCount restarts the kubelet of a node whose Node goes on to be Ready, whether the kubelet reports or not.
func TestAReadyOfBeforeDoesNotCount(t *testing.T) {
	for name, reports := range map[string]bool{"a kubelet that reports": true, "one that does not": false} {
		t.Run(name, func(t *testing.T) {
			cluster, reported := staticpodtest.NewNode(t), "1"
			cluster.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/api/v1/nodes/"+staticpodtest.Name {
					return false
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"conditions": []any{
					map[string]string{"type": "Ready", "status": "True", "lastHeartbeatTime": reported},
				}}})
				return true
			}
			n := newTestNode(t)
			for _, p := range []string{staticpod.KubeletConfig, "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
				data, err := os.ReadFile(cluster.Path(p))
				require.NoError(t, err)
				n.put(p, string(data))
			}
			n.agent.probes = func(bool) []probe.Probe {
				for _, p := range probe.All(n.agent.host(), false) {
					if p.Name == probe.NodeObject {
						return []probe.Probe{probe.New(probe.NodeObject, p.Ask)}
					}
				}
				return nil
			}
			cluster.Set(func(c *staticpodtest.Node) {
				answer := c.Answer
				c.Answer = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+staticpodtest.Name {
						_, _ = w.Write([]byte(`{"spec":{"renewTime":"1"}}`))
						return true
					}
					return answer(w, r)
				}
			})
			n.at("made restart kubelet.service", func() {
				if reports {
					cluster.Set(func(*staticpodtest.Node) { reported = "2" })
				}
			})
			if req := request(1, "/etc/kubelet/a", "a"); reports {
				n.succeed(req)
			} else {
				require.Contains(t, n.fail(req).Message, "is from before the kubelet was restarted, which has not reported since")
			}
			require.NoFileExists(t, n.agent.state.path(reportFile))
		})
	}
}
