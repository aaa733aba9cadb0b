// Package grafana has refit's dashboards.
package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	Description   string `json:"description"`
	SchemaVersion int    `json:"schemaVersion"`
	Panels        []panel
	Links         []struct {
		URL string `json:"url"`
	} `json:"links"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("*.json")
	require.NoError(t, err)
	require.Equal(t, []string{"refit-fleet.json", "refit-update.json"}, files)
	kustomization, err := os.ReadFile("kustomization.yaml")
	require.NoError(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		require.Contains(t, string(kustomization), "- "+file)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(data, &d), file)
		all[d.UID] = d
	}
	return all
}

func TestPanels(t *testing.T) {
	all := dashboards(t)
	for uid, d := range all {
		require.NotEmpty(t, d.Title)
		require.NotEmpty(t, d.Description)
		require.Positive(t, d.SchemaVersion)
		for _, l := range d.Links {
			require.Contains(t, all, strings.TrimPrefix(l.URL, "/d/"))
		}
		ids := map[int]bool{}
		titles := map[string]bool{}
		for i, p := range d.Panels {
			require.False(t, ids[p.ID], "%s: %s: the id is there twice", uid, p.Title)
			require.False(t, titles[p.Title], "%s: %s is there twice", uid, p.Title)
			ids[p.ID], titles[p.Title] = true, true
			require.NotEmpty(t, p.Title, uid)
			for _, o := range d.Panels[:i] {
				a, b := p.GridPos, o.GridPos
				require.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H, "%s: %s covers %s", uid, p.Title, o.Title)
			}
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, "%s: %s", uid, p.Title)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s: %s", uid, p.Title)
			require.NotEmpty(t, p.Targets, "%s: %s", uid, p.Title)
		}
	}
}

// TestMetricsAndLabelsOfDashboards: each metric and each label of an expression is one that refit serves.
func TestMetricsAndLabelsOfDashboards(t *testing.T) {
	metrics := served(t)
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for uid, d := range dashboards(t) {
		variables := map[string]bool{"datasource": true, "__rate_interval": true}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
			if v.Type != "query" {
				continue
			}
			m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
			require.NotNil(t, m, "%s: %s", uid, v.Definition)
			require.NoError(t, check(m[1], metrics, variables))
			require.True(t, slices.Contains(labelsOf(m[1], metrics), m[2]), "%s: %s has no label %s", uid, v.Definition, m[2])
		}
		used := map[string]bool{}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				require.NoError(t, check(target.Expr, metrics, variables), "%s: %s", uid, p.Title)
				for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					require.True(t, slices.Contains(labelsOf(target.Expr, metrics), m[1]), "%s: %s: the legend has the label %s", uid, p.Title, m[1])
				}
				for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
					used[m[1]] = true
				}
			}
		}
		for name := range variables {
			require.True(t, used[name] || name == "datasource" || name == "__rate_interval", "%s: nothing asks for $%s", uid, name)
		}
	}
}

// TestCheck: what is mistyped is found.
func TestCheck(t *testing.T) {
	metrics := map[string][]string{"refit_a": {"namespace", "phase"}, "refit_b_bucket": {"le"}}
	variables := map[string]bool{"namespace": true}
	for _, good := range []string{
		`sum by (phase) (refit_a{namespace=~"$namespace", phase!="x or y"}) or vector(0)`, `histogram_quantile(0.5, sum by (le) (increase(refit_b_bucket[6h])))`,
		`sum by (pod) (refit_a) > 1e3`, `count(refit_a == 0) - topk(2, refit_a) * -1`,
	} {
		require.NoError(t, check(good, metrics, variables), good)
	}
	for _, bad := range []string{
		"refit_c", `refit_a{cluster="x"}`, "sum by (cluster) (refit_a)", "summe(refit_a)", `refit_a{namespace=~"$cluster"}`, "sum(refit_a", "refit_a{phase=\"x\"", "sum by (le) (refit_a)",
		"up", "1", `refit_a{phase="x}`, "refit_b_sum", "refit_a[1h",
	} {
		require.Error(t, check(bad, metrics, variables), bad)
	}
}
