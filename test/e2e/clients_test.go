//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/system"
)

// strangersAreRefused calls hooks while machines are updated: without a certificate, and with one by the same authority for a name
// that is not accepted.
func (u *suite) strangersAreRefused(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	f := file(app+"/strangers", "knock\n")
	require.NoError(t, u.SetFiles(ctx, f))
	for _, hook := range []string{"discovery", "canupdatemachine/can-update-machine", "updatemachine/update-machine"} {
		for _, name := range []string{"", "tenant.fleet"} {
			_, err := u.Call(name, hook)
			require.Error(t, err, "%s as %q", hook, name)
		}
	}
	status, err := u.Call(system.ManagerName(), "discovery")
	require.NoError(t, err, "the call is right but for the certificate")
	require.Equal(t, 200, status)
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, f)

	var logs strings.Builder
	for _, r := range u.Replicas {
		var metrics string
		eventually(ctx, t, func(ctx context.Context) (err error) { // a scenario of another cluster may just have killed it
			metrics, err = r.Metrics(ctx)
			return err
		})
		require.Contains(t, metrics, "\nrefit_hook_client_certificates_required 1\n")
		output, err := r.Output()
		require.NoError(t, err)
		require.Contains(t, output, "Hooks are answered to clients with a certificate of the authorities for one of the names")
		logs.WriteString(output)
	}
	require.Contains(t, logs.String(), `tenant.fleet`)
	require.Contains(t, logs.String(), "client didn't provide a certificate")
}
