package grafana

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/build/metrics"
)

// served are the metrics that refit serves, with their labels, by name: what its source declares.
func served(t *testing.T) map[string][]string {
	t.Helper()
	all, _ := declared(t)
	return all
}

// declaredHelp are their help texts.
func declaredHelp(t *testing.T) map[string]string {
	t.Helper()
	_, helps := declared(t)
	return helps
}

func declared(t *testing.T) (all map[string][]string, helps map[string]string) {
	t.Helper()
	read, err := metrics.Read(filepath.Join("..", ".."))
	require.NoError(t, err)
	all, helps = map[string][]string{}, map[string]string{}
	for _, m := range read {
		all[m.Name], helps[m.Name] = m.Labels, m.Help
		if m.Type == metrics.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[m.Name+suffix] = append(slices.Clone(m.Labels), "le")
			}
		}
	}
	require.Greater(t, len(all), 30)
	return all, helps
}

func TestServed(t *testing.T) {
	all := served(t)
	require.Equal(t, []string{"namespace", "phase", "reason"}, all["refit_machine_updates"])
	require.Equal(t, []string{"class", "result", "le"}, all["refit_machine_update_duration_seconds_bucket"])
	require.Equal(t, []string{"hook", "status", "le"}, all["refit_hook_request_duration_seconds_bucket"])
	require.Equal(t, []string{"version", "goversion"}, all["refit_build_info"])
	require.Contains(t, all, "refit_audit_log_lost")
	require.Empty(t, all["refit_audit_log_lost"])
	require.Equal(t, []string{"namespace", "policy", "cluster", "role"}, all["refit_change_management_change_pending"])
}
