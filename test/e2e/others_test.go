//go:build e2e

package e2e

import (
	"context"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

// othersWorkers is how many workers there are. They are the machines on which the reference extension has a part: what it claims of a control plane
// (versions, files, etcd's image) is refit's own.
const othersWorkers = 5

// TestOthers has other extensions be updaters beside refit's own: Cluster API's reference extension, and one that lies.
func TestOthers(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer assertNothingLeft(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s, err := system.Start(ctx, system.Options{
		Source: root, BinDir: filepath.Join(root, "bin"), Progress: t.Output(), AllowPaths: []string{app, "/etc/demo.conf"}, Registered: true,
		ControlPlaneReplicas: new(int32(1)), WorkerReplicas: new(int32(othersWorkers)),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	u := &suite{s, ""}
	u.runAll(ctx, t, []scenario{
		{"one edit is made in place by refit and by Cluster API's reference extension, and waits while that is down", (*suite).madeByReference},
		{"an extension that lies about what it can has nothing replaced, and is named", (*suite).lieAboutClaims},
		{"an extension that lies while it is at work has nothing replaced, and is named", (*suite).lieAtWork},
		{"an extension that breaks a unit on a node has the update fail by its name, before refit begins its own part", (*suite).breakAtWork},
	})
}

// madeByReference has an edit of a file, which is refit's, and of the failure domain, which the reference extension claims, be made in place by both. While
// it is down nothing is replaced, and when it is back that goes on.
func (u *suite) madeByReference(ctx context.Context, t *testing.T) {
	reference, err := system.StartReference(ctx, t.TempDir(), t.Output())
	require.NoError(t, err)
	defer func() { require.NoError(t, reference.Close()) }()
	registration := &refitv1.UpdaterRegistration{}
	registration.Name = "reference"
	registration.Spec.ClientConfig = refitv1.UpdaterClientConfig{URL: "https://" + reference.Host, CABundle: reference.Bundle}
	registration.Spec.TimeoutSeconds, registration.Spec.Disturbs = 4, refitv1.UpdaterDisturbsNone
	defer u.register(ctx, t, registration)()

	before := u.identities(ctx, t)
	require.Len(t, u.workers(ctx, t), othersWorkers)
	one := file(app+"/others", "one\n")
	closed, _ := opensIn(3 * time.Hour)
	closed.WhenClosed, closed.Hold = refitv1.RefuseWhenClosed, refitv1.HoldAll
	policy := u.policy(ctx, t, "far", closed)
	read()
	u.changeBoth(ctx, t, one, "one")
	u.withheld(ctx, t, "whenClosed: Refuse")
	u.awaitPending(ctx, t, u.Cluster, "MachineDeployment", func(p *refitv1.PendingChange) bool { // who makes what is told before it is made
		c := meta.FindStatusCondition(p.Status.Conditions, refitv1.ChangePendingCondition)
		return c != nil && strings.Contains(c.Message, "5 to be updated in place") && strings.Contains(c.Message, "spec.failureDomain of the machine by UpdaterRegistration reference") &&
			strings.Contains(c.Message, "of the bootstrapConfig by files (UpdaterRegistration reference would claim it, too)")
	})
	require.NoError(t, u.Client.Delete(ctx, policy))
	u.rollOut(ctx, t, before)
	u.madeByBoth(ctx, t, one, "one", refitv1.UpdaterRun{Name: "reference", Done: true, Message: "Extension completed updating Machine"})

	require.NoError(t, reference.Stop(time.Minute))
	two := file(app+"/others", "two\n")
	u.changeBoth(ctx, t, two, "two")
	asked := time.Now()
	require.Never(t, func() bool {
		now, err := u.Identities(ctx)
		return err == nil && !assert.ObjectsAreEqual(before, now)
	}, 30*time.Second, time.Second, "a machine was replaced, or made, while the extension was down")
	u.onWorkers(ctx, t, one) // nothing is begun that is not decided on
	require.NoError(t, reference.Restart())
	u.rollOut(ctx, t, before)
	u.madeByBoth(ctx, t, two, "two", refitv1.UpdaterRun{Name: "reference", Done: true, Message: "Extension completed updating Machine"})
	t.Logf("the change waited for %s", time.Since(asked).Round(time.Second))
}

// register registers an extension, waits until its handlers are known, and returns what takes the registration away.
func (u *suite) register(ctx context.Context, t *testing.T, registration *refitv1.UpdaterRegistration) (unregister func()) {
	t.Helper()
	require.NoError(t, u.Client.Create(ctx, registration))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, u.Client.Get(ctx, client.ObjectKeyFromObject(registration), registration))
		require.True(c, meta.IsStatusConditionTrue(registration.Status.Conditions, refitv1.UpdaterReady), registration.Status.Conditions)
	}, time.Minute, 100*time.Millisecond)
	return func() { require.NoError(t, client.IgnoreNotFound(u.Client.Delete(ctx, registration))) }
}

// changeBoth edits a file and the failure domain of the workers at once, and has all of them be updated at the same time.
func (u *suite) changeBoth(ctx context.Context, t *testing.T, f bootstrapv1.File, domain string) {
	t.Helper()
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(d *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files, d.Spec.Template.Spec.FailureDomain = []bootstrapv1.File{f}, domain
		d.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(othersWorkers))
	}))
}

// madeByBoth demands that each of the workers has both, and what the updater has said.
func (u *suite) madeByBoth(ctx context.Context, t *testing.T, f bootstrapv1.File, domain string, run refitv1.UpdaterRun) {
	t.Helper()
	machines, err := u.Cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.Len(t, machines, othersWorkers)
	for i := range machines {
		m := &machines[i]
		require.Equal(t, domain, m.Spec.FailureDomain)
		require.NoError(t, u.CheckFile(ctx, m.Name, f))
		mu, err := u.Update(ctx, m.Name)
		require.NoError(t, err)
		require.True(t, system.Succeeded(mu))
		require.Equal(t, []refitv1.UpdaterRun{run}, mu.Status.Updaters)
	}
}

// onWorkers demands a file on each worker.
func (u *suite) onWorkers(ctx context.Context, t *testing.T, f bootstrapv1.File) {
	t.Helper()
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
}
