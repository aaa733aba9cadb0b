//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/test/system"
)

// startsWithin is how long after the instant that a forecast names the first machine may start, on a machine that does much else.
const startsWithin = time.Minute

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

// theForecastComesTrue has refit explain say of an edit that waits what becomes of each machine, and then lets that happen. The edit is one of a file
// that takes nothing, and of one that restarts a unit.
func (u *suite) theForecastComesTrue(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	spec, opens := opensIn(3 * time.Hour)
	p := u.policy(ctx, t, "forecast", spec)
	mild, restarts := file(app+"/forecast", "told before\n"), sysctlFile("told before")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, mild, restarts))
	u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))

	// Of the control plane nothing is told: nobody has edited it.
	f := u.explained(ctx, t, "cluster/"+u.Cluster.Name)
	require.Equal(t, explain.InPlace, f.Verdict)
	require.Equal(t, explain.None, forecastOf(t, f, "KubeadmControlPlane").Verdict)
	told := forecastOf(t, f, "MachineDeployment")
	require.Equal(t, explain.Counts{Total: len(workers), InPlace: len(workers)}, told.Machines)
	require.Positive(t, told.AtOnce)
	var names []string
	for _, m := range told.Each {
		names = append(names, m.Name)
		require.Equal(t, explain.InPlace, m.Verdict, m.Why)
		require.Equal(t, told.Disruption, m.Disruption)
		require.True(t, m.When.NotBefore.Equal(opens), "%s may start at %s, and not at %s", m.Name, m.When.NotBefore, opens)
	}
	slices.Sort(names)
	require.Equal(t, workers, names)

	spec, opens = opensIn(30 * time.Second)
	u.changePolicy(ctx, t, p, func(s *refitv1.ChangeManagementPolicySpec) { s.MaintenanceSchedule = spec.MaintenanceSchedule })
	again := forecastOf(t, u.explained(ctx, t, "machinedeployment/"+told.Name), "MachineDeployment")
	require.True(t, again.When.NotBefore.Equal(opens), "the first one may start at %s, and not at %s", again.When.NotBefore, opens)
	u.rollOut(ctx, t, before) // and none was replaced
	u.happenedAsTold(ctx, t, again, opens)
	for _, name := range workers {
		require.NoError(t, u.CheckFile(ctx, name, mild))
		require.NoError(t, u.CheckFile(ctx, name, restarts))
	}
}

// happenedAsTold compares what was told of an owner's machines with what their updates say was done, and when.
func (u *suite) happenedAsTold(ctx context.Context, t *testing.T, told *explain.Owner, opens time.Time) {
	t.Helper()
	var updates []*refitv1.MachineUpdate
	for _, m := range told.Each {
		mu, err := u.Update(ctx, m.Name)
		require.NoError(t, err)
		require.True(t, system.Succeeded(mu))
		require.Equal(t, told.Actions, mu.Status.Actions, m.Name)
		require.False(t, mu.Status.Admission.AdmittedAt.Time.Before(opens), "%s was let start at %s, before %s", m.Name, mu.Status.Admission.AdmittedAt, opens)
		updates = append(updates, mu)
	}
	slices.SortFunc(updates, func(a, b *refitv1.MachineUpdate) int {
		return cmp.Compare(a.Status.Admission.AdmittedAt.Unix(), b.Status.Admission.AdmittedAt.Unix())
	})
	require.WithinDuration(t, opens, updates[0].Status.Admission.AdmittedAt.Time, startsWithin, "when the first one was let start")
	for i := told.AtOnce; i < len(updates); i++ {
		done, next := updates[i-told.AtOnce].Status.FinishedAt, updates[i].Status.Admission.AdmittedAt
		require.False(t, next.Time.Before(done.Time), "more than %d at once: %s started at %s, and %s ended at %s", told.AtOnce, updates[i].Name, next, updates[i-told.AtOnce].Name, done)
	}
}
