package server

import (
	"os"
	"path/filepath"
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

	const fleet = 1060 << 20 // most that was measured, docs/install.md
	require.Greater(t, limit, int64(fleet+webhook.MaxSmallBytes+webhook.MaxLargeBytes+webhook.MaxWork+webhook.MaxLargeWork+webhook.MaxReviewWork))
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		soft := resource.MustParse(strings.TrimSuffix(e.Value, "B")) // Go writes MiB where Kubernetes writes Mi
		require.InDelta(t, .9, float64(soft.Value())/float64(limit), .05)
		return
	}
	require.Fail(t, "GOMEMLIMIT is not set")
}
