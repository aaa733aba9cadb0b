package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesAreMadeOfWhatThereIs(t *testing.T) {
	root := filepath.Join("..", "..")
	for name, made := range map[string]func(string) (string, error){"metrics.md": Page, "alerts.md": AlertsPage} {
		want, err := made(root)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(root, "docs", "reference", name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is not what make reference makes", name)
	}
}

// TestAnAlertHasARunbook, or there is no page.
func TestAnAlertHasARunbook(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "config", "prometheus")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	rules := "spec: {groups: [{rules: [{record: a}, {alert: A, for: 5m, labels: {severity: warning}, annotations: {summary: 'a | b', runbook_url: '" + pages + "a.md#a'}}]}]}"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	page, err := AlertsPage(root)
	require.NoError(t, err)
	require.Contains(t, page, "|\n| [A](../a.md#a) | warning | 5m | a \\| b |\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(strings.Replace(rules, pages, "https://example.org/", 1)), 0o600))
	_, err = AlertsPage(root)
	require.ErrorContains(t, err, "the alert A has no runbook")
}
