package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// changedSpec writes a request in which a worker's KubeadmConfig has other fields than before.
func changedSpec(t *testing.T, current, desired map[string]any) string {
	t.Helper()
	data, err := os.ReadFile(explained)
	require.NoError(t, err)
	var request map[string]any
	require.NoError(t, json.Unmarshal(data, &request))
	for side, fields := range map[string]map[string]any{"current": current, "desired": desired} {
		object := request[side].(map[string]any)["bootstrapConfigTemplate"].(map[string]any)
		fields["joinConfiguration"] = map[string]any{}
		object["spec"] = map[string]any{"template": map[string]any{"spec": fields}}
	}
	data, err = json.Marshal(request)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "request.json")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	return name
}

func TestExplainSaysWhyAFieldTakesNothing(t *testing.T) {
	of := func(days int) map[string]any {
		return map[string]any{"clusterConfiguration": map[string]any{"certificateValidityPeriodDays": days}}
	}
	out, err := runExplain(t, "", "-f", changedSpec(t, of(365), of(90)))
	require.NoError(t, err)
	require.Contains(t, out, "None: certificates that were issued stay as they are; those that are made from now on have it")
	require.Contains(t, out, "\nVerdict: InPlace\nOn the node: None\n")
}

// TestExplainOfWhatANodeBootsWithAndReaches is about the actions that are more than a unit's restart.
func TestExplainOfWhatANodeBootsWithAndReaches(t *testing.T) {
	for path, takes := range map[string]string{
		"/etc/default/grub.d/50-audit.cfg": "On the node: RebuildBootloader, Reboot\nDisruption: Reboot\n",
		"/etc/kernel/cmdline":              "On the node: RebuildBootloader, Reboot\nDisruption: Reboot\n",
		"/etc/modprobe.d/nf.conf":          "On the node: RebuildInitramfs, Reboot\nDisruption: Reboot\n",
		"/etc/netplan/60-mtu.yaml":         "On the node: Drain, NetworkReload\nDisruption: Drain\n",
	} {
		t.Run(path, func(t *testing.T) {
			of := func(content string) map[string]any {
				return map[string]any{"files": []any{map[string]any{"path": path, "content": content, "owner": "root:root", "permissions": "0644"}}}
			}
			out, err := runExplain(t, "", "-f", changedSpec(t, of("a\n"), of("b\n")))
			require.NoError(t, err)
			require.Contains(t, out, "\nVerdict: InPlace\n"+takes)
			_, err = runExplain(t, "", "-f", changedSpec(t, of("a\n"), of("b\n")), "--allow-paths", path)
			require.ErrorContains(t, err, "leaves out", "the same engine, and the same error as at the server's start")
		})
	}
}

func TestExplainOfTooManyProbes(t *testing.T) {
	list := func(name string) string {
		var all []string
		for i := range 20 {
			all = append(all, fmt.Sprintf("{name: %s%d, tcp: 'a:1'}", name, i))
		}
		return "{probes: [" + strings.Join(all, ", ") + "]}"
	}
	_, err := runExplain(t, "", "-f", explained, "--policy", policyFile(t, list("a"), list("b"), list("c")))
	require.ErrorContains(t, err, "(p1, p2, p3) have 60 probes together, of which 40 are allowed")
}
