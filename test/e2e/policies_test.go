//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// freeze is a calendar with an event that is long over.
const freeze = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//refit//e2e//EN\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20200101T000000Z\r\n" +
	"DTSTART;VALUE=DATE:20200101\r\nDTEND;VALUE=DATE:20200102\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

func (u *suite) invalidCloses(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	calendar := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "freezes"}, Data: map[string]string{"freezes.ics": freeze},
	}
	require.NoError(t, u.Client.Create(ctx, calendar))
	p := u.policy(ctx, t, "frozen", refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{
		Strategy: schedule.MaintenanceScheduleStrategy,
		MaintenanceSchedule: &schedule.MaintenanceSchedule{Exclude: []schedule.Exclude{
			{Calendar: &schedule.CalendarReference{ConfigMap: schedule.ConfigMapKey{Name: "freezes", Key: "freezes.ics"}}},
		}},
	}})
	require.True(t, *p.Status.Open, "%v", p.Status.Conditions)

	// A running server notices that the calendar is gone.
	require.NoError(t, u.Client.Delete(ctx, calendar))
	u.ready(ctx, t, p, metav1.ConditionFalse)
	f := file(app+"/frozen", "waits\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.InvalidPolicy), permitted(mu))
	require.Contains(t, mu.Status.Message, "maintenanceSchedule.exclude[0].calendar.configMap")
	require.Nil(t, mu.Status.Plan, "nobody connects to the node")
	u.nowhere(ctx, t, f.Path)
	u.metric(ctx, t, `refit_change_management_next_change_eta_seconds{cluster="`+u.Cluster.Name+`",namespace="`+u.Cluster.Namespace+`",policy="frozen",role="Worker"}`, "-2")

	// And half a calendar keeps it closed, although it is there again.
	calendar.ResourceVersion, calendar.Data["freezes.ics"] = "", freeze[:len(freeze)/2]
	require.NoError(t, u.Client.Create(ctx, calendar))
	time.Sleep(20 * time.Second) // longer than it takes to read it, and what waits to ask again
	u.ready(ctx, t, p, metav1.ConditionFalse)
	u.nowhere(ctx, t, f.Path)
	calendar.Data["freezes.ics"] = freeze
	require.NoError(t, u.Client.Update(ctx, calendar))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.Client.Delete(ctx, calendar))
}

// ready waits until a policy is Ready, or is not.
func (u *suite) ready(ctx context.Context, t *testing.T, p *refitv1.ChangeManagementPolicy, status metav1.ConditionStatus) {
	t.Helper()
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, refitv1.ReadyCondition, status), err
	}), "policy %s should be Ready %s", p.Name, status)
}

// machineSets are the names of the MachineSets of the workers.
func (u *suite) machineSets(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var list clusterv1.MachineSetList
	require.NoError(t, u.Client.List(ctx, &list, client.InNamespace(u.Cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: u.Cluster.Name}))
	var names []string
	for _, ms := range list.Items {
		names = append(names, ms.Name)
	}
	return names
}

// withheld waits until a replica has logged that a policy does not let a change be decided, with a text.
func (u *suite) withheld(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	u.logs(ctx, t, "A policy does not let the change be decided now", text)
}

// logs waits until a replica has logged a line about an object of the cluster's namespace, with all of the texts.
func (u *suite) logs(ctx context.Context, t *testing.T, texts ...string) {
	t.Helper()
	texts = append(texts, `"`+u.Cluster.Namespace+`/`)
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(context.Context) (bool, error) {
		for _, r := range u.Replicas {
			output, err := r.Output()
			if err != nil {
				return false, err
			}
			for line := range strings.SplitSeq(output, "\n") {
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
					return true, nil
				}
			}
		}
		return false, nil
	}), "no replica has logged %q", texts)
}

// read gives both replicas the time to read a policy: its status is the leader's, and the other one answers hooks as well.
func read() { time.Sleep(10 * time.Second) }

func (u *suite) forbidKeepsTheMachines(ctx context.Context, t *testing.T) {
	before, sets := u.identities(ctx, t), u.machineSets(ctx, t)
	u.policy(ctx, t, "keeps", refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Replacement: refitv1.ForbidReplacement,
	})
	read()
	command := func(commands ...string) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, c *bootstrapv1.KubeadmConfigSpec) {
			c.PostKubeadmCommands = commands
		}))
	}
	command("echo forbidden")
	u.withheld(ctx, t, "policy keeps forbids the replacement")
	u.withheld(ctx, t, "spec.postKubeadmCommands of the bootstrapConfig: it takes effect when a machine is made")
	time.Sleep(8 * time.Second) // Cluster API asks again, and gets the same answer
	require.Equal(t, before, u.identities(ctx, t))
	require.Subset(t, sets, u.machineSets(ctx, t), "no MachineSet was planned")
	command()
	u.rollOut(ctx, t, before)
}

func (u *suite) refuseCommitsNothing(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, sets := u.identities(ctx, t), u.machineSets(ctx, t)
	spec := restrictive()
	spec.WhenClosed = refitv1.RefuseWhenClosed
	p := u.policy(ctx, t, "refuses", spec)
	read()
	f := sysctlFile("refused")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	u.withheld(ctx, t, "whenClosed: Refuse")
	time.Sleep(8 * time.Second) // Cluster API asks again, and gets the same answer
	require.Subset(t, sets, u.machineSets(ctx, t), "no MachineSet was planned")
	for _, name := range u.workers(ctx, t) {
		require.NotContains(t, u.machine(ctx, t, name).Annotations, clusterv1.UpdateInProgressAnnotation, "nothing was committed")
	}
	u.nowhere(ctx, t, f.Path)
	require.NoError(t, u.Client.Delete(ctx, p))
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
}
