package cli

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAlertsAndMetricsAreDocumented(t *testing.T) {
	page := readPage(t, policiesPage)
	rules := readPage(t, filepath.Join("..", "..", "config", "prometheus", "rules.yaml"))
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	require.NotEmpty(t, alerts)
	runbooks := regexp.MustCompile(`runbook_url: \S*/docs/(\S+\.md)#(\S+)`).FindAllStringSubmatch(rules, -1)
	require.Len(t, runbooks, len(alerts), "each alert has a runbook")
	for i, m := range alerts {
		runbook := readPage(t, filepath.Join(filepath.Dir(policiesPage), runbooks[i][1]))
		require.True(t, strings.Contains(runbook, "\n### "+m[1]+"\n"), "the alert %s has no heading", m[1])
		require.Contains(t, anchors(runbook), runbooks[i][2])
	}
	source := filepath.Join("..", "..", "internal", "changemanagement")
	metric := regexp.MustCompile(`refit_change_management_[a-z_]+[a-z]`)
	names := func(text string) []string {
		all := metric.FindAllString(text, -1)
		slices.Sort(all)
		return slices.Compact(all)
	}
	var code strings.Builder
	for _, file := range []string{"collector.go", "joint.go", "metrics.go"} {
		code.WriteString(readPage(t, filepath.Join(source, file)))
	}
	require.Equal(t, names(code.String()), names(page))
}

func TestEveryMetricIsDocumented(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(docsDir, "*.md"))
	require.NoError(t, err)
	var docs strings.Builder
	for _, page := range pages {
		docs.WriteString(readPage(t, page))
	}
	literal, found := regexp.MustCompile(`"(refit_[a-z_]+)"`), 0
	for _, dir := range []string{"internal", "handlers", "webhook"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, m := range literal.FindAllStringSubmatch(readPage(t, path), -1) {
				found++
				require.Contains(t, docs.String(), "`"+m[1], "the metric %s of %s is on no page", m[1], path)
			}
			return nil
		}))
	}
	require.Greater(t, found, 15)
}
