package agent

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

// TestAKubeletThatEvictsOrTakesNoPods reports what is wrong some looks after its restart, as a kubelet does.
func TestAKubeletThatEvictsOrTakesNoPods(t *testing.T) {
	for content, fails := range map[string]string{
		"evict":    "watch the node failed: the node's disk worked before and does not now: DiskPressure of the Node is True: disk",
		"max-pods": "the node's room for pods worked before and does not now: its allocatable pods are 0",
	} {
		cluster, n := staticpodtest.NewNode(t), newTestNode(t)
		n.put("/etc/kubelet/a", "good")
		asked := 0
		cluster.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			disk, pods, now := "False", "110", time.Now().String()
			switch is := n.content("/etc/kubelet/a"); {
			case strings.HasSuffix(r.URL.Path, "/nodes/"+staticpodtest.Name) && is == content:
				if asked++; asked > 8 && is == "evict" {
					disk = "True"
				}
				if is == "max-pods" {
					pods = "0"
				}
			case strings.HasSuffix(r.URL.Path, "/leases/"+staticpodtest.Name):
				_ = json.NewEncoder(w).Encode(map[string]any{"spec": map[string]string{"renewTime": now}})
				return true
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"allocatable": map[string]string{"pods": pods}, "conditions": []any{
				map[string]string{"type": "DiskPressure", "status": disk, "message": "disk", "lastHeartbeatTime": now},
				map[string]string{"type": "Ready", "status": "True", "lastHeartbeatTime": now},
			}}})
			return true
		}
		for _, p := range []string{staticpod.KubeletConfig, "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
			data, err := os.ReadFile(cluster.Path(p))
			require.NoError(t, err)
			n.put(p, string(data))
		}
		n.agent.cfg.ActionTimeout = fewLooks
		req := request(1, "/etc/kubelet/a", content)
		req.Rules.Soak = new(30 * time.Second)
		status := n.fail(req)
		require.Contains(t, status.Message, fails)
		require.True(t, status.RolledBack, status.Message)
		require.Equal(t, "good", n.content("/etc/kubelet/a"))
	}
}
