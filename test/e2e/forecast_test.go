//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/test/system"
)

// startsWithin is how long after the instant that a forecast names the first machine may start, on a machine that does much else.
const startsWithin = time.Minute

const (
	// takes is what the policies say that one machine takes, which nobody has measured yet.
	takes = 2 * time.Minute
	// endsWithin is how far the end of the last machine may be from the instant that a forecast names, which is rounded up to five minutes. Two machines, one
	// after the other, take less than what the policies say.
	endsWithin = 2*takes + 5*time.Minute
)

// explained is what refit explain says of an object of the management cluster.
func (u *suite) explained(ctx context.Context, t *testing.T, object string) *explain.Forecast {
	t.Helper()
	var f explain.Forecast
	text := u.refit(ctx, t, "explain", object, "-o", "json", "--allow-paths", strings.Join(allowPaths, ",")) // the lab has no Deployment that would say so
	require.NoError(t, json.Unmarshal([]byte(text), &f), text)
	t.Log(text)
	return &f
}

// forecastOf returns what is told of the owner of a kind.
func forecastOf(t *testing.T, f *explain.Forecast, kind string) *explain.Owner {
	t.Helper()
	i := slices.IndexFunc(f.Owners, func(o *explain.Owner) bool { return o.Kind == kind })
	require.GreaterOrEqual(t, i, 0, "nothing is told of a %s: %+v", kind, f)
	return f.Owners[i]
}

// ownerNamed returns what is told of a MachineDeployment.
func ownerNamed(t *testing.T, f *explain.Forecast, name string) *explain.Owner {
	t.Helper()
	i := slices.IndexFunc(f.Owners, func(o *explain.Owner) bool { return o.Kind == "MachineDeployment" && o.Name == name })
	require.GreaterOrEqual(t, i, 0, "nothing is told of MachineDeployment %s: %+v", name, f)
	return f.Owners[i]
}

// theForecastComesTrue has refit explain say of an edit that waits what becomes of each machine, and then lets that happen. The workers get a file that takes
// nothing and one that restarts a unit; a machine of another MachineDeployment is to run a command, for which it is replaced, in a window that opens later.
func (u *suite) theForecastComesTrue(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	workers, deployment := u.workers(ctx, t), u.workerDeployment(ctx, t)
	other := u.deployOne(ctx, t, deployment)
	before := u.identities(ctx, t)
	spec, opens := opensIn(3 * time.Hour)
	spec.ExpectedDuration = takes.String()
	p := u.policy(ctx, t, "forecast", spec)
	spec, opensLater := opensIn(3*time.Hour + time.Minute)
	spec.ExpectedDuration = takes.String()
	spec.Selector.Machines.MatchLabels = map[string]string{clusterv1.MachineDeploymentNameLabel: other.Name}
	later := u.policy(ctx, t, "forecast-later", spec)
	mild, restarts := file(app+"/forecast", "told before\n"), sysctlFile("told before")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, mild, restarts))
	u.commandOn(ctx, t, other, "echo told before")
	u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))

	// Of the control plane nothing is told: nobody has edited it.
	f := u.explained(ctx, t, "cluster/"+u.Cluster.Name)
	require.Equal(t, explain.Replace, f.Verdict)
	require.Equal(t, explain.None, forecastOf(t, f, "KubeadmControlPlane").Verdict)
	inPlace := ownerNamed(t, f, deployment.Name)
	require.Equal(t, explain.Counts{Total: len(workers), InPlace: len(workers)}, inPlace.Machines)
	require.Equal(t, workers, requireEach(t, inPlace, explain.InPlace, opens))
	require.Positive(t, inPlace.AtOnce)
	replaced := ownerNamed(t, f, other.Name)
	require.Equal(t, explain.Counts{Total: 1, Replaced: 1}, replaced.Machines)
	require.Len(t, requireEach(t, replaced, explain.Replace, opensLater), 1)

	first, opens := opensIn(time.Minute)
	second, opensLater := opensIn(time.Minute + 20*time.Second)
	u.changePolicy(ctx, t, p, func(s *refitv1.ChangeManagementPolicySpec) { s.MaintenanceSchedule = first.MaintenanceSchedule })
	u.changePolicy(ctx, t, later, func(s *refitv1.ChangeManagementPolicySpec) { s.MaintenanceSchedule = second.MaintenanceSchedule })
	told := u.toldBy(ctx, t, map[string]time.Time{inPlace.Name: opens, replaced.Name: opensLater})
	u.askAgainAt(ctx, t, other, opensLater)
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	u.happenedAsTold(ctx, t, before, told)
	for _, name := range workers {
		require.NoError(t, u.CheckFile(ctx, name, mild))
		require.NoError(t, u.CheckFile(ctx, name, restarts))
	}
}

// requireEach demands what is told of each machine of an owner, and returns their names, in order.
func requireEach(t *testing.T, o *explain.Owner, verdict explain.Verdict, opens time.Time) []string {
	t.Helper()
	require.Equal(t, verdict, o.Verdict)
	var names []string
	for _, m := range o.Each {
		names = append(names, m.Name)
		require.Equal(t, verdict, m.Verdict, m.Why)
		require.Equal(t, o.Disruption, m.Disruption)
		require.NotNil(t, m.When.NotBefore, m.Name)
		require.True(t, m.When.NotBefore.Equal(opens), "%s may start at %s, and not at %s", m.Name, m.When.NotBefore, opens)
	}
	slices.Sort(names)
	return names
}

// deployOne makes a MachineDeployment of one machine like the workers, and waits until that is there. It goes with the test.
func (u *suite) deployOne(ctx context.Context, t *testing.T, workers *clusterv1.MachineDeployment) *clusterv1.MachineDeployment {
	t.Helper()
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: workers.Namespace, Name: u.Cluster.Name + "-told"}, Spec: *workers.Spec.DeepCopy()}
	md.Spec.Replicas, md.Spec.Selector, md.Spec.Template.ObjectMeta = ptr.To[int32](1), metav1.LabelSelector{}, clusterv1.ObjectMeta{}
	require.NoError(t, u.Client.Create(ctx, md))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		require.NoError(t, u.Client.Delete(ctx, md))
		require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(u.Client.Get(ctx, client.ObjectKeyFromObject(md), md.DeepCopy())), nil
		}), "the MachineDeployment does not go")
	})
	u.available(ctx, t, md.Name, "")
	return md
}

// available waits until the one machine of a MachineDeployment is available, and another one than was there before. It returns that.
func (u *suite) available(ctx context.Context, t *testing.T, deployment, before string) *clusterv1.Machine {
	t.Helper()
	var found clusterv1.Machine
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		machines, err := u.of(ctx, deployment)
		if err != nil || len(machines) != 1 {
			return false, err
		}
		found = machines[0]
		return found.Name != before && meta.IsStatusConditionTrue(found.Status.Conditions, clusterv1.MachineAvailableCondition), nil
	}), "MachineDeployment %s does not have another machine than %q", deployment, before)
	return &found
}

// commandOn has the machines of a MachineDeployment be made with another command.
func (u *suite) commandOn(ctx context.Context, t *testing.T, md *clusterv1.MachineDeployment, command string) {
	t.Helper()
	template := &bootstrapv1.KubeadmConfigTemplate{}
	require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: md.Namespace, Name: md.Spec.Template.Spec.Bootstrap.ConfigRef.Name}, template))
	next := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, GenerateName: md.Name + "-", Labels: template.Labels}, Spec: *template.Spec.DeepCopy()}
	next.Spec.Template.Spec.PostKubeadmCommands = []string{command}
	require.NoError(t, u.Client.Create(ctx, next))
	eventually(ctx, t, func(ctx context.Context) error {
		if err := u.Client.Get(ctx, client.ObjectKeyFromObject(md), md); err != nil {
			return err
		}
		was := md.DeepCopy()
		md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = next.Name
		return u.Client.Patch(ctx, md, client.MergeFrom(was))
	})
}

// askAgainAt has Cluster API ask again about a MachineDeployment when a window is open. By itself it does so with pauses that grow to 17 minutes.
func (u *suite) askAgainAt(ctx context.Context, t *testing.T, md *clusterv1.MachineDeployment, opens time.Time) {
	t.Helper()
	time.Sleep(time.Until(opens.Add(2 * time.Second)))
	require.NoError(t, u.Client.Patch(ctx, md, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"e2e":"asks again"}}}`))))
}

// toldBy waits until it is told of MachineDeployments that their first machine may start at an instant, and when all would be done.
func (u *suite) toldBy(ctx context.Context, t *testing.T, opens map[string]time.Time) []*explain.Owner {
	t.Helper()
	var told []*explain.Owner
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		told = nil
		f := u.explained(ctx, t, "cluster/"+u.Cluster.Name)
		for name, at := range opens {
			o := ownerNamed(t, f, name)
			if o.When.NotBefore == nil || !o.When.NotBefore.Equal(at) || o.When.LastDone == nil || o.When.LastDone.Sub(at) > time.Hour {
				return false, fmt.Errorf("%s: %+v", name, o.When)
			}
			told = append(told, o)
		}
		return true, nil
	}), "what is told does not come to be about the windows")
	slices.SortFunc(told, func(a, b *explain.Owner) int { return a.When.NotBefore.Compare(*b.When.NotBefore) })
	return told
}

// did is what has become of a machine.
type did struct{ start, end time.Time }

// String implements fmt.Stringer.
func (d did) String() string {
	return d.start.UTC().Format(time.TimeOnly) + " to " + d.end.UTC().Format(time.TimeOnly)
}

// happenedAsTold compares what was told of owners, in the order of their starts, with what has become of each of their machines, and when.
func (u *suite) happenedAsTold(ctx context.Context, t *testing.T, before map[string]types.UID, told []*explain.Owner) {
	t.Helper()
	var firsts []time.Time
	for _, o := range told {
		var all []did
		for _, m := range o.Each {
			d := u.becameOf(ctx, t, o, m, before)
			require.False(t, d.start.Before(*m.When.NotBefore), "%s was begun at %s, before %s", m.Name, d.start, m.When.NotBefore)
			require.False(t, d.end.After(o.When.LastDone.Add(startsWithin)), "%s was done at %s, and all were to be at %s", m.Name, d.end, o.When.LastDone)
			all = append(all, d)
		}
		slices.SortFunc(all, func(a, b did) int { return a.start.Compare(b.start) })
		require.WithinDuration(t, *o.When.NotBefore, all[0].start, startsWithin, "when the first one of %s was begun", o.Name)
		require.WithinDuration(t, *o.When.LastDone, all[len(all)-1].end, endsWithin, "when the last one of %s was done", o.Name)
		firsts = append(firsts, all[0].start)
		for i := o.AtOnce; i < len(all); i++ {
			require.False(t, all[i].start.Before(all[i-o.AtOnce].end), "more than %d of %s at once: %v", o.AtOnce, o.Name, all)
		}
		t.Logf("%s: told %s to %s, was %v", o.Name, o.When.NotBefore, o.When.LastDone, all)
	}
	require.True(t, slices.IsSortedFunc(firsts, time.Time.Compare), "the order is another than was told: %v", firsts)
}

// becameOf demands that of a machine became what was told, and returns when.
func (u *suite) becameOf(ctx context.Context, t *testing.T, o *explain.Owner, m *explain.Machine, before map[string]types.UID) did {
	t.Helper()
	if m.Verdict == explain.Replace {
		next := u.available(ctx, t, o.Name, m.Name)
		c := meta.FindStatusCondition(next.Status.Conditions, clusterv1.MachineAvailableCondition)
		return did{next.CreationTimestamp.Time, c.LastTransitionTime.Time}
	}
	require.Equal(t, before[m.Name], u.machine(ctx, t, m.Name).UID, "%s was replaced", m.Name)
	mu, err := u.Update(ctx, m.Name)
	require.NoError(t, err)
	require.True(t, system.Succeeded(mu))
	require.Equal(t, o.Actions, mu.Status.Actions, m.Name)
	return did{mu.Status.Admission.AdmittedAt.Time, mu.Status.FinishedAt.Time}
}
