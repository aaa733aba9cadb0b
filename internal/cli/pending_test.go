package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

func TestPendingCommand(t *testing.T) {
	p := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster-prod"}}
	p.Spec = refitv1.PendingChangeSpec{Cluster: "prod", Owner: refitv1.PendingOwner{Kind: "Cluster", Name: "prod"}}
	cmd := func(args ...string) (string, error) {
		f := &pendingFlags{managementFlags: connected(managementtest.New(p))}
		return run(t, f.command(), args...)
	}
	for _, args := range [][]string{{"-A"}, {"-n", "fleet"}, {"-A", "-o", "wide"}, {"-A", "-o", "json"}, {"-A", "-o", "yaml"}} {
		out, err := cmd(args...)
		require.NoError(t, err)
		require.Contains(t, out, "prod")
	}
	out, err := cmd("-A", "-o", "name")
	require.NoError(t, err)
	require.Equal(t, "pendingchange.capi-refit.dev/cluster-prod\n", out)
	out, err = cmd("-n", "empty")
	require.NoError(t, err, "that nothing waits is no error")
	require.Equal(t, "nothing waits in namespace empty\n", out)
	_, err = cmd("-A", "-n", "fleet")
	require.ErrorContains(t, err, "exclude each other")
	_, err = cmd("-o", "xml")
	require.ErrorContains(t, err, `--output is "xml" and can be table, wide, json, yaml, name`)
}
