package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
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
