package server

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/webhook"
)

// TestMemoryOfTheDeployment: the limit has room for 30,000 Machines and all that requests may hold, and GOMEMLIMIT goes with it.
func TestMemoryOfTheDeployment(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "manager", "manager.yaml"))
	require.NoError(t, err)
	var d appsv1.Deployment
	require.NoError(t, yaml.Unmarshal([]byte(strings.Split(string(data), "\n---\n")[0]), &d))
	c := d.Spec.Template.Spec.Containers[0]
	limit := c.Resources.Limits.Memory().Value()

	rows, sum := memoryTable(t)
	require.Greater(t, limit, sum)
	measured := regexp.MustCompile(`(?m)^\| most memory \| ([0-9,]+) MiB `).FindSubmatch(docsPage(t, "scale.md"))
	require.NotNil(t, measured)
	require.Equal(t, mebibytes(t, string(measured[1])), rows[0], "docs/install.md has another figure than docs/scale.md")
	require.Greater(t, limit, rows[0]+int64(webhook.MaxSmallBytes+webhook.MaxLargeBytes+webhook.MaxWork+webhook.MaxLargeWork+webhook.MaxReviewWork))
	require.Contains(t, string(docsPage(t, "release.md")), "`REFIT_MEMORY_LIMIT` | "+c.Resources.Limits.Memory().String()+" |")
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		require.Contains(t, string(docsPage(t, "release.md")), "`REFIT_GOMEMLIMIT` | "+e.Value+" |")
		soft := resource.MustParse(strings.TrimSuffix(e.Value, "B")) // Go writes MiB where Kubernetes writes Mi
		require.InDelta(t, .9, float64(soft.Value())/float64(limit), .05)
		return
	}
	require.Fail(t, "GOMEMLIMIT is not set")
}

func docsPage(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	return text
}

func mebibytes(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	require.NoError(t, err)
	return n << 20
}

// memoryTable returns what docs/install.md says that memory is for, and the sum that it says, which has to be right.
func memoryTable(t *testing.T) (rows []int64, sum int64) {
	t.Helper()
	_, table, found := strings.Cut(string(docsPage(t, "install.md")), "| what | MiB |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, " | ")
		rows = append(rows, mebibytes(t, strings.TrimSuffix(cells[len(cells)-1], " |")))
	}
	require.Greater(t, len(rows), 2)
	last := len(rows) - 1
	for _, row := range rows[:last] {
		sum += row
	}
	require.Equal(t, rows[last], sum, "the last row is the sum of the others")
	return rows[:last], sum
}
