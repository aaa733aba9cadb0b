package pending

import (
	"fmt"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// BenchmarkForecast says when 30,000 changes in 300 clusters are done, under a policy with a budget and one without.
func BenchmarkForecast(b *testing.B) {
	policies := compiled(b, saturdays("a", func(s *spec) { s.Budget = refitv1.Budget{MaxConcurrent: 500, MaxStartsPerWindow: 10000} }), weekly("b", "SA,SU"))
	var entries []*entry
	for i := range 30000 {
		e := &entry{machine: worker(fmt.Sprintf("w%d", i)), cause: refitv1.PendingInPlace, earliest: opened}
		e.cluster = &clusterv1.Cluster{}
		e.cluster.Name = fmt.Sprintf("c%d", i%300)
		e.prospect.Budgeted, e.prospect.Schedules, e.prospect.Expected, e.prospect.Role = policies, schedulesOf(policies), 10*time.Minute, refitv1.WorkerRole
		entries = append(entries, e)
	}
	b.ReportAllocs()
	for b.Loop() {
		f := newForecast(outside, func(*changemanagement.Policy) changemanagement.Spent { return changemanagement.Spent{} })
		f.run(entries, func(e *entry) []*lane { return []*lane{f.lane(e.cluster.Name, 20)} })
	}
	b.Log(lastDone(entries))
}
