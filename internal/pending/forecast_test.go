package pending

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

func compiled(t testing.TB, all ...*refitv1.ChangeManagementPolicy) []*changemanagement.Policy {
	var out []*changemanagement.Policy
	for _, p := range all {
		one, err := changemanagement.Compile(p, schedule.NoCalendars)
		require.NoError(t, err)
		out = append(out, one)
	}
	return out
}

func schedulesOf(policies []*changemanagement.Policy) []*schedule.Schedule {
	var out []*schedule.Schedule
	for _, p := range policies {
		out = append(out, p.Schedule)
	}
	return out
}

func TestForecast(t *testing.T) {
	budget := func(b refitv1.Budget) func(*spec) { return func(s *spec) { s.Budget = b } }
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		n, wide  int // how many wait, and how many may be out at once
		spent    changemanagement.Spent
		edit     func(*entry)
		last     time.Duration // after the window opens; 0: it is not known
	}{
		"one":                               {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 1, wide: 1, last: 10 * time.Minute},
		"one after the other":               {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 6, wide: 1, last: time.Hour},
		"three at once":                     {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 6, wide: 3, last: 20 * time.Minute},
		"as many as fit, then next week":    {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 49, wide: 1, last: week + 10*time.Minute},
		"by two policies":                   {policies: []*refitv1.ChangeManagementPolicy{saturdays("a"), weekly("b", "SA,SU", func(s *spec) { s.MaintenanceSchedule.Permit[0].Duration = "20m" })}, n: 3, wide: 1, last: week + 10*time.Minute},
		"maxConcurrent":                     {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{MaxConcurrent: 2}))}, n: 6, wide: 10, last: 30 * time.Minute},
		"maxStartsPerWindow":                {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 2}))}, n: 5, wide: 10, last: 2*week + 10*time.Minute},
		"minSpacing":                        {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{MinSpacing: "30m"}))}, n: 3, wide: 10, last: 70 * time.Minute},
		"stopAfterFailures":                 {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{StopAfterFailures: 1}))}, n: 1, wide: 1, spent: changemanagement.Spent{Failed: 1}},
		"replacements ask no budget":        {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{MaxConcurrent: 1}))}, n: 6, wide: 3, edit: func(e *entry) { e.cause = refitv1.PendingReplacement }, last: 20 * time.Minute},
		"what disturbs nothing asks nobody": {policies: []*refitv1.ChangeManagementPolicy{saturdays("a", budget(refitv1.Budget{MaxConcurrent: 1}))}, n: 60, wide: 1, edit: func(e *entry) { e.free = true }, last: 10 * time.Hour},
		"what is measured counts":           {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 2, wide: 1, edit: func(e *entry) { e.prospect.Expected = 3 * time.Hour }, last: 6 * time.Hour},
		"nobody knows when it starts":       {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 1, wide: 1, edit: func(e *entry) { e.earliest = time.Time{} }},
		"what is under way is out":          {policies: []*refitv1.ChangeManagementPolicy{saturdays("a")}, n: 3, wide: 1, edit: func(e *entry) { e.underWay = e.machine.Name == "w0" }, last: 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForecast(outside, func(*changemanagement.Policy) changemanagement.Spent { return tc.spent })
			policies := compiled(t, tc.policies...)
			var entries []*entry
			for i := range tc.n {
				e := &entry{machine: worker(fmt.Sprintf("w%d", i)), cause: refitv1.PendingInPlace, earliest: opened}
				e.machine.Labels, e.machine.CreationTimestamp = nil, metav1.Time{}
				e.cluster = fleet("")[0].(*clusterv1.Cluster)
				e.prospect.Budgeted, e.prospect.Schedules, e.prospect.Expected, e.prospect.Role = policies, schedulesOf(policies), 10*time.Minute, refitv1.WorkerRole
				if tc.edit != nil {
					tc.edit(e)
				}
				entries = append(entries, e)
			}
			f.run(entries, func(*entry) []*lane { return []*lane{f.lane("workers", tc.wide)} })
			last := lastDone(entries)
			if tc.last == 0 {
				require.Nil(t, last)
				return
			}
			require.Equal(t, opened.Add(tc.last), last.Time)
		})
	}
}
