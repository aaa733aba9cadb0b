//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/audit/heads"
)

// plantedSecret is in a Secret that goes into a file on all nodes.
const plantedSecret = "planted-secret-value"

// tellsNoSecret demands that no secret of the whole run is where it does not belong: in refit's logs and audit logs, or in
// events, conditions and MachineUpdates.
func (u *suite) tellsNoSecret(ctx context.Context, t *testing.T) {
	secrets := [][]byte{[]byte(plantedSecret), keyLine(t, u.Fleet.PrivateKey())}
	texts := map[string][]byte{}
	for _, pattern := range []string{"refit-*.log", "refit-*.audit"} {
		files, err := filepath.Glob(filepath.Join(u.Lab.LogDir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, f := range files {
			content, err := os.ReadFile(f)
			require.NoError(t, err)
			texts[f] = content
		}
	}
	for name, list := range map[string]client.ObjectList{
		"Events": &corev1.EventList{}, "events.k8s.io": &eventsv1.EventList{}, "MachineUpdates": &refitv1.MachineUpdateList{},
		"Machines": &clusterv1.MachineList{}, "Clusters": &clusterv1.ClusterList{},
	} {
		require.NoError(t, u.Client.List(ctx, list))
		content, err := json.Marshal(list)
		require.NoError(t, err)
		texts[name] = content
	}
	for where, text := range texts {
		for _, secret := range secrets {
			require.False(t, bytes.Contains(text, secret), "%s has a secret in it", where)
		}
	}
}

// keyLine is a line of a private key, which nothing else has.
func keyLine(t *testing.T, key []byte) []byte {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(key), []byte("\n"))
	require.Greater(t, len(lines), 2)
	return lines[1]
}

// auditVerifies demands that refit's audit logs are whole, and have all that was published of them, whatever became of their replicas.
// Each replica has its own.
func (u *suite) auditVerifies(ctx context.Context, t *testing.T) {
	files, err := filepath.Glob(filepath.Join(u.Lab.LogDir, "refit-*.audit"))
	require.NoError(t, err)
	require.Len(t, files, len(u.Replicas))
	var published corev1.ConfigMap
	require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: "refit-system", Name: heads.Name}, &published))
	dir := t.TempDir()
	text, err := json.Marshal(published)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "heads.json"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "public"), []byte(published.Data[audit.PublicKeyKey]), 0o600))
	verified := 0
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		if info.Size() == 0 { // it has never led
			continue
		}
		verified++
		output, err := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "refit"), "audit", "verify",
			"--head", filepath.Join(dir, "heads.json"), "--public-key", filepath.Join(dir, "public"), f).CombinedOutput()
		require.NoError(t, err, "%s: %s", f, output)
		t.Logf("%s: %s", filepath.Base(f), output)
	}
	require.Positive(t, verified)
}

// sharesNothing demands that the leases in the cluster are those of Machines of its own.
func (u *suite) sharesNothing(ctx context.Context, t *testing.T) {
	var leases coordinationv1.LeaseList
	require.NoError(t, u.workload(ctx, t).List(ctx, &leases, client.InNamespace(leaseNamespace)))
	require.NotEmpty(t, leases.Items)
	for _, l := range leases.Items {
		require.True(t, strings.HasPrefix(l.Name, "node-"+u.Cluster.Name+"-"), "lease %s is of no node of %s", l.Name, u.Cluster)
	}
}
