//go:build e2e

package e2e

import (
	"context"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

// TestOthers has Cluster API's reference extension be an updater beside refit's own: an edit of a file, which is refit's, and of the failure domain, which it
// claims, is made in place by both. While it is down nothing is replaced, and when it is back that goes on.
func TestOthers(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer assertNothingLeft(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s, err := system.Start(ctx, system.Options{
		Source: root, BinDir: filepath.Join(root, "bin"), Progress: t.Output(), AllowPaths: []string{app, "/etc/demo.conf"}, Registered: true,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	reference, err := system.StartReference(ctx, t.TempDir(), t.Output())
	require.NoError(t, err)
	defer func() { require.NoError(t, reference.Close()) }()
	u := &suite{s, ""}
	registration := &refitv1.UpdaterRegistration{}
	registration.Name = "reference"
	registration.Spec.ClientConfig = refitv1.UpdaterClientConfig{URL: "https://" + reference.Host, CABundle: reference.Bundle}
	registration.Spec.TimeoutSeconds, registration.Spec.Disturbs = 4, refitv1.UpdaterDisturbsNone
	require.NoError(t, u.Client.Create(ctx, registration))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, u.Client.Get(ctx, client.ObjectKeyFromObject(registration), registration))
		require.True(c, meta.IsStatusConditionTrue(registration.Status.Conditions, refitv1.UpdaterReady), registration.Status.Conditions)
	}, time.Minute, 100*time.Millisecond)

	before := u.identities(ctx, t)
	one := file(app+"/others", "one\n")
	u.changeBoth(ctx, t, one, "one")
	u.rollOut(ctx, t, before)
	u.madeByBoth(ctx, t, one, "one")

	require.NoError(t, reference.Stop(time.Minute))
	two := file(app+"/others", "two\n")
	u.changeBoth(ctx, t, two, "two")
	asked := time.Now()
	require.Never(t, func() bool {
		now, err := u.Identities(ctx)
		return err == nil && !assert.ObjectsAreEqual(before, now)
	}, 30*time.Second, time.Second, "a machine was replaced, or made, while the extension was down")
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, one), "nothing is begun that is not decided on")
	}
	require.NoError(t, reference.Restart())
	u.rollOut(ctx, t, before)
	u.madeByBoth(ctx, t, two, "two")
	t.Logf("the change waited for %s", time.Since(asked).Round(time.Second))
}

// changeBoth edits a file and the failure domain of the workers at once.
func (u *suite) changeBoth(ctx context.Context, t *testing.T, f bootstrapv1.File, domain string) {
	t.Helper()
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(d *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files, d.Spec.Template.Spec.FailureDomain = []bootstrapv1.File{f}, domain
	}))
}

// madeByBoth demands that the workers have both.
func (u *suite) madeByBoth(ctx context.Context, t *testing.T, f bootstrapv1.File, domain string) {
	t.Helper()
	machines, err := u.Cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, machines)
	for i := range machines {
		m := &machines[i]
		require.Equal(t, domain, m.Spec.FailureDomain)
		require.NoError(t, u.CheckFile(ctx, m.Name, f))
		mu, err := u.Update(ctx, m.Name)
		require.NoError(t, err)
		require.True(t, system.Succeeded(mu))
		require.Equal(t, []refitv1.UpdaterRun{{Name: "reference", Done: true, Message: "Extension completed updating Machine"}}, mu.Status.Updaters)
	}
}
