//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/system"
)

func (u *suite) fiveChanges(ctx context.Context, t *testing.T) { u.changeAgainAndAgain(ctx, t, 5) }

// changeAgainAndAgain changes a file a number of times, and demands each time that all is well.
func (u *suite) changeAgainAndAgain(ctx context.Context, t *testing.T, times int) {
	t.Helper()
	before := u.identities(ctx, t)
	for i := range times {
		f := file(app+"/five", fmt.Sprintf("change %d\n", i+1))
		f.Permissions = fmt.Sprintf("06%d0", i)
		require.NoError(t, u.SetFiles(ctx, f))
		u.rollOut(ctx, t, before)
		u.everywhere(ctx, t, f)
		// Only bootstrap laid it down: no update has ever listed it.
		u.nowhere(ctx, t, "/etc/demo.conf")
		for _, name := range u.machines(ctx, t) {
			mu, err := u.Update(ctx, name)
			require.NoError(t, err)
			require.True(t, system.Succeeded(mu))
			u.onceEach(ctx, t, name, mu.Spec.Digest)
		}
		if u.Fleet.Kind() == nodes.Machines {
			u.healthy(ctx, t)
		}
	}
}

func (u *suite) actions(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	started := map[string]string{}
	for _, name := range u.machines(ctx, t) {
		started[name] = u.mainPID(ctx, t, name, "ssh.service")
	}
	sshd := file("/etc/ssh/sshd_config.d/50-e2e.conf", "MaxSessions 20\n")
	sysctl := file("/etc/sysctl.d/50-e2e.conf", "# nothing to set\n")
	require.NoError(t, u.SetFiles(ctx, sshd, sysctl))
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, sshd)
	for _, name := range u.machines(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, []string{"Reload ssh.service", "Restart systemd-sysctl.service"}, mu.Status.Actions)
		require.Equal(t, started[name], u.mainPID(ctx, t, name, "ssh.service"), "ssh.service was reloaded, not restarted")
		out, err := u.Fleet.Node(name).Exec(ctx, "sshd", "-T")
		require.NoError(t, err)
		require.Contains(t, string(out), "maxsessions 20")
		reloaded, err := u.Fleet.Node(name).Reloaded(ctx, "ssh.service")
		require.NoError(t, err)
		require.True(t, reloaded)
	}
}

// comeAndGo has files come, one of them out of a Secret, and some of them go again, while the node edits another one.
func (u *suite) comeAndGo(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	const value = plantedSecret + "\n"
	require.NoError(t, u.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "e2e"}, Data: map[string][]byte{"key": []byte(value)},
	}))
	secret := bootstrapv1.File{Path: app + "/secret", Permissions: "0600", Owner: "root:root"}
	secret.ContentFrom.Secret = bootstrapv1.SecretFileSource{Name: "e2e", Key: "key"}
	there, kept, changed := file(app+"/there", "there\n"), file(app+"/kept", "one\n"), file(app+"/changed", "one\n")
	require.NoError(t, u.SetFiles(ctx, secret, there, kept, changed))
	u.rollOut(ctx, t, before)
	out := secret
	out.Content = value
	for _, f := range []bootstrapv1.File{out, there, kept, changed} {
		u.everywhere(ctx, t, f)
	}
	u.nowhere(ctx, t, app+"/five")

	edited := kept
	edited.Content = "edited on the node\n"
	for _, name := range u.machines(ctx, t) {
		require.NoError(t, u.Fleet.Node(name).WriteFile(ctx, kept.Path, nodeFile(edited.Content)))
	}
	changed.Content = "two\n"
	require.NoError(t, u.SetFiles(ctx, kept, changed))
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, changed)
	u.everywhere(ctx, t, edited)
	u.nowhere(ctx, t, there.Path)
	u.nowhere(ctx, t, secret.Path)
	for _, name := range u.machines(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Contains(t, strings.Join(mu.Status.Notes, "\n"), kept.Path+" was changed on the node")
	}
	// What kubeadm's bootstrap laid down and `files` never listed is not ours to remove. Workers may have been rebooted, and then it
	// is gone.
	machines, err := u.Cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	for _, m := range machines {
		_, err := u.Fleet.Node(m.Name).ReadFile(ctx, "/run/cluster-api/placeholder")
		require.NoError(t, err)
	}
}
