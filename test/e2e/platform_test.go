//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// platformPolicy creates a policy of the platform for the workers of this cluster's namespace, and removes it when the scenario ends.
func (u *suite) platformPolicy(ctx context.Context, t *testing.T, spec refitv1.ChangeManagementPolicySpec) *refitv1.ClusterChangeManagementPolicy {
	t.Helper()
	p := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "platform-" + u.Cluster.Namespace}}
	p.Spec.ChangeManagementPolicySpec = spec
	p.Spec.DeletionGrace = "0s" // the next scenario begins at once
	p.Spec.Selector.Roles = []refitv1.Role{refitv1.WorkerRole}
	p.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: u.Cluster.Namespace}
	require.NoError(t, u.Client.Create(ctx, p))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(u.Client.Delete(context.WithoutCancel(ctx), p)))
	})
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.ObservedGeneration == p.Generation && p.Status.SelectedMachines != nil && int(*p.Status.SelectedMachines) == len(u.workers(ctx, t)), err
	}), "policy %s of the platform has no status", p.Name)
	return p
}

// tenantsDontWeakenThePlatform has a tenant permit what the platform holds back, in each way that a tenant has.
func (u *suite) tenantsDontWeakenThePlatform(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	platform := u.platformPolicy(ctx, t, restrictive())
	u.policy(ctx, t, "anytime", refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}})
	f := file(app+"/platform", "waits\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	title := "policy ClusterChangeManagementPolicy " + platform.Name
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.Paused), permitted(mu))
	require.Contains(t, mu.Status.Message, title+" is restrictive")
	require.Contains(t, mu.Status.Message, "kubectl annotate clusterchangemanagementpolicies "+platform.Name)

	until := time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
	opensNothing := func(override string) {
		mu = u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
			return waiting(refitv1.ReasonWindow)(mu) && strings.Contains(mu.Status.Message, override) && strings.Contains(mu.Status.Message, " does not open "+title)
		})
		require.Equal(t, string(schedule.Paused), permitted(mu))
	}
	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation, until)
	u.annotateMachine(ctx, t, mu.Name, refitv1.PermissiveUntilAnnotation, until)
	opensNothing("permissive-until=" + until + " on Machine " + mu.Name)
	u.annotateWorkers(ctx, t, refitv1.BypassAnnotation, mu.ChangeID())
	opensNothing("bypass-change-management=" + mu.ChangeID())
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	// The platform's own annotation opens it.
	changed := platform.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, refitv1.PermissiveUntilAnnotation, until)
	require.NoError(t, u.Client.Patch(ctx, changed, client.MergeFrom(platform)))
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
		u.annotateMachine(ctx, t, name, refitv1.PermissiveUntilAnnotation, "")
	}
	u.event(ctx, t, "ChangeManagementOverridden", func(e *corev1.Event) bool {
		return strings.Contains(e.Message, "permissive-until="+until+" on ClusterChangeManagementPolicy "+platform.Name)
	})
	u.annotateWorkers(ctx, t, refitv1.BypassAnnotation, "")
	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation, "")
}

// whatNeverOpensIsRefused has the API server refuse policies by what refit says of them, and not what is there already.
func (u *suite) whatNeverOpensIsRefused(ctx context.Context, t *testing.T) {
	windows := func(recurrence, zone string) refitv1.ChangeManagementPolicySpec {
		return refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{
			Strategy:            schedule.MaintenanceScheduleStrategy,
			MaintenanceSchedule: &schedule.MaintenanceSchedule{TimeZone: zone, Permit: []schedule.Permit{{Recurrence: recurrence}}},
		}}
	}
	for name, tc := range map[string]struct {
		spec refitv1.ChangeManagementPolicySpec
		says string
	}{
		"a broken recurrence": {windows("FREQ=WEEKLY;BYDAY=XX", ""), "spec.maintenanceSchedule.permit[0].recurrence"},
		"no such zone":        {windows("FREQ=DAILY", "Mars/Olympus"), "spec.maintenanceSchedule.timeZone"},
		"windows that are over": {
			windows("FREQ=DAILY;UNTIL=20200101", ""), "no window opens within 1000 days"},
	} {
		p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "refused"}, Spec: tc.spec}
		err := u.Client.Create(ctx, p)
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tc.says, name)
		cluster := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refused-" + u.Cluster.Namespace}}
		cluster.Spec.ChangeManagementPolicySpec = tc.spec
		err = u.Client.Create(ctx, cluster)
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tc.says, name)
	}
	p := u.policy(ctx, t, "taken", windows("FREQ=DAILY", "Europe/Berlin"))
	broken := p.DeepCopy()
	broken.Spec.MaintenanceSchedule.TimeZone = "Mars/Olympus"
	err := u.Client.Patch(ctx, broken, client.MergeFrom(p))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
}
