package fields_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	sigsjson "sigs.k8s.io/json"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/kubeadmconfig/fields"
)

func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range fields.All() {
		t.Run(f.Path, func(t *testing.T) {
			require.False(t, seen[f.Path], "listed twice")
			seen[f.Path] = true
			for _, c := range f.Changes {
				oc, differs := c.ObjectChange()
				require.True(t, differs, "%s: nothing differs", c.Operation)
				require.NotEmpty(t, oc.Fields)
				for side, spec := range map[string]map[string]any{"current": c.Current, "desired": c.Desired} {
					raw, err := json.Marshal(spec)
					require.NoError(t, err)
					var typed bootstrapv1.KubeadmConfigSpec
					strict, err := sigsjson.UnmarshalStrict(raw, &typed)
					require.NoError(t, err, "%s %s", c.Operation, side)
					require.Empty(t, strict, "%s %s", c.Operation, side)
				}
			}
		})
	}
	for _, path := range []string{
		"users[].passwdFrom.secret.name", "users[].sshAuthorizedKeys[]", "mounts[][]", "clusterConfiguration.featureGates.*",
		"joinConfiguration.controlPlane", "joinConfiguration.controlPlane.localAPIEndpoint.bindPort",
		"joinConfiguration.nodeRegistration.taints", "joinConfiguration.nodeRegistration.taints[].key",
		"clusterConfiguration.apiServer.extraEnvs[].valueFrom", "joinConfiguration.discovery.file.kubeConfig.cluster.certificateAuthorityData",
	} {
		require.True(t, seen[path], path)
	}
}

// TestChanges has the change of one field change no other, as far as there can be such a change.
func TestChanges(t *testing.T) {
	for _, f := range fields.All() {
		if f.Path != "users[].shell" {
			continue
		}
		require.Equal(t, []fields.Change{
			{Operation: fieldset.Added, Current: users(nil), Desired: users("/bin/bash")},
			{Operation: fieldset.Changed, Current: users("/bin/bash"), Desired: users("/bin/sh")},
			{Operation: fieldset.Removed, Current: users("/bin/bash"), Desired: users(nil)},
		}, f.Changes)
		return
	}
	require.Fail(t, "users[].shell is not listed")
}

func users(shell any) map[string]any {
	u := map[string]any{"name": "alice"}
	if shell != nil {
		u["shell"] = shell
	}
	return map[string]any{"users": []any{u}}
}

func TestOf(t *testing.T) {
	c := fields.Change{Operation: fieldset.Added, Current: map[string]any{}, Desired: map[string]any{"joinConfiguration": map[string]any{"caCertPath": "/a"}}}
	require.Equal(t, fields.Change{
		Operation: fieldset.Added,
		Current:   map[string]any{"joinConfiguration": map[string]any{"controlPlane": map[string]any{}}},
		Desired:   map[string]any{"joinConfiguration": map[string]any{"controlPlane": map[string]any{}, "caCertPath": "/a"}},
	}, c.Of(fields.ControlPlane))
	require.Equal(t, map[string]any{"joinConfiguration": map[string]any{}}, c.Of(fields.Worker).Current)
	require.Empty(t, c.Current, "the change itself stays as it is")

	c.Desired = map[string]any{"joinConfiguration": map[string]any{"controlPlane": map[string]any{}}}
	require.Equal(t, c, c.Of(fields.ControlPlane), "what would differ no more is left as it is")
}
