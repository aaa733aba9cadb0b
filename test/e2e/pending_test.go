//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

// opensIn is the spec of a policy whose window opens each day, the next time after so long.
func opensIn(d time.Duration) (spec refitv1.ChangeManagementPolicySpec, opens time.Time) {
	opens = time.Now().Add(d).UTC().Truncate(time.Second)
	spec.Strategy = schedule.MaintenanceScheduleStrategy
	spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{
		{Recurrence: "FREQ=DAILY", StartTime: opens.Format(time.TimeOnly), Duration: "1h"},
	}}
	return spec, opens
}

// awaitPending waits until a PendingChange of a cluster's owner is as expected.
func (u *suite) awaitPending(ctx context.Context, t *testing.T, c *lab.Cluster, kind string, ok func(*refitv1.PendingChange) bool) *refitv1.PendingChange {
	t.Helper()
	var found *refitv1.PendingChange
	err := poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		var list refitv1.PendingChangeList
		if err := u.Client.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}); err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Items, func(p refitv1.PendingChange) bool { return p.Spec.Owner.Kind == kind && ok(&p) })
		if i < 0 {
			return false, fmt.Errorf("there are %s", shown(list.Items))
		}
		found = &list.Items[i]
		return true, nil
	})
	require.NoError(t, err, "no PendingChange of a %s came to be as expected", kind)
	return found
}

// shown returns what PendingChanges say, in short.
func shown(all []refitv1.PendingChange) string {
	var out []string
	for _, p := range all {
		out = append(out, fmt.Sprintf("%s/%s since %s: %+v", p.Spec.Owner.Kind, p.Spec.Owner.Name, p.CreationTimestamp.UTC().Format(time.TimeOnly), p.Status.Conditions))
	}
	return strings.Join(out, "; ")
}

// nothingPending waits until nothing of a cluster is pending.
func (u *suite) nothingPending(ctx context.Context, t *testing.T, c *lab.Cluster) {
	t.Helper()
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		var list refitv1.PendingChangeList
		err := u.Client.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name})
		return err == nil && len(list.Items) == 0, err
	}), "something is pending still")
}

// touches returns a function that reports whether a change touches Machines, for a cause, and starts no earlier than at an instant.
func touches(machines []string, cause refitv1.PendingCause, earliest time.Time) func(*refitv1.PendingChange) bool {
	return func(p *refitv1.PendingChange) bool {
		var names []string
		for _, m := range p.Status.List {
			if m.Cause != cause {
				return false
			}
			names = append(names, m.Name)
		}
		slices.Sort(names)
		return slices.Equal(names, machines) && p.Status.EarliestStart.Equal(&metav1.Time{Time: earliest}) && p.Status.LastDone != nil
	}
}

// pendingShowsAll has a policy refuse a change in place, then hold a replacement back, before anything is committed.
func (u *suite) pendingShowsAll(ctx context.Context, t *testing.T) {
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	spec, opens := opensIn(3 * time.Hour)
	spec.WhenClosed, spec.Hold = refitv1.RefuseWhenClosed, refitv1.HoldAll
	p := u.policy(ctx, t, "far", spec)
	read()
	f := file(app+"/pending", "waits\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	u.withheld(ctx, t, "whenClosed: Refuse")
	u.awaitPending(ctx, t, u.Cluster, "MachineDeployment", touches(workers, refitv1.PendingInPlace, opens))
	u.awaitPending(ctx, t, u.Cluster, "Cluster", touches(workers, refitv1.PendingInPlace, opens))
	out := u.refit(ctx, t, "pending", "-o", "wide")
	t.Log(out)
	require.Contains(t, out, "MachineDeployment/"+u.workerDeployment(ctx, t).Name)
	require.Contains(t, out, opens.Format(time.RFC3339))
	for _, name := range workers {
		require.Contains(t, out, "Machine/"+name)
	}
	labels := `cluster="` + u.Cluster.Name + `",namespace="` + u.Cluster.Namespace + `"`
	u.metric(ctx, t, `refit_change_management_change_pending{cluster="`+u.Cluster.Name+`",namespace="`+u.Cluster.Namespace+`",policy="far",role="Worker"}`, "2")
	u.metric(ctx, t, `refit_change_pending_machines{cause="in_place",`+labels+`,role="Worker"}`, fmt.Sprint(len(workers)))
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.PendingMachines != nil && int(*p.Status.PendingMachines) == len(workers), err
	}), "the policy does not count them")

	command := func(commands ...string) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, c *bootstrapv1.KubeadmConfigSpec) {
			c.PostKubeadmCommands = commands
		}))
	}
	command("echo replaced")
	u.awaitPending(ctx, t, u.Cluster, "MachineDeployment", touches(workers, refitv1.PendingReplacement, opens))
	u.metric(ctx, t, `refit_change_pending_machines{cause="replacement",`+labels+`,role="Worker"}`, fmt.Sprint(len(workers)))
	require.Contains(t, u.refit(ctx, t, "pending"), "spec.postKubeadmCommands")
	require.Equal(t, before, u.identities(ctx, t))

	command()
	require.NoError(t, u.Client.Delete(ctx, p)) // it opens
	u.rollOut(ctx, t, before)
	for _, name := range workers {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
	u.nothingPending(ctx, t, u.Cluster)
	require.Contains(t, u.refit(ctx, t, "pending"), "nothing waits in namespace "+u.Cluster.Namespace)
}

// upgradeIsPending demands that a held upgrade of a cluster is shown: its control plane waits for a window, and its workers for that.
func (u *suite) upgradeIsPending(ctx context.Context, t *testing.T, c *lab.Cluster, controlPlane *refitv1.ChangeManagementPolicy) {
	t.Helper()
	spec, opens := opensIn(3 * time.Hour)
	u.changePolicy(ctx, t, controlPlane, func(s *refitv1.ChangeManagementPolicySpec) {
		s.Strategy, s.MaintenanceSchedule = spec.Strategy, spec.MaintenanceSchedule
	})
	upgrade := func(p *refitv1.PendingChange) bool {
		return len(p.Status.Causes) == 1 && p.Status.Causes[0].Cause == refitv1.PendingUpgrade
	}
	p := u.awaitPending(ctx, t, c, "KubeadmControlPlane", func(p *refitv1.PendingChange) bool {
		return upgrade(p) && p.Status.EarliestStart.Equal(&metav1.Time{Time: opens})
	})
	require.Len(t, p.Status.List, 1)
	p = u.awaitPending(ctx, t, c, "MachineDeployment", upgrade)
	require.Nil(t, p.Status.EarliestStart, "the policy of the workers never opens")
	p = u.awaitPending(ctx, t, c, "Cluster", func(p *refitv1.PendingChange) bool { return upgrade(p) && p.Status.Machines == 2 })
	require.Nil(t, p.Status.LastDone, "nobody knows when the workers are done")
}
