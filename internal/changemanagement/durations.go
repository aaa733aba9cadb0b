package changemanagement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

const (
	// enoughSamples is how many updates make a measurement.
	enoughSamples = 5
	// mostSamples is how many are looked at, the latest ones.
	mostSamples = 100
	// durationsRefresh is how old a measurement may be.
	durationsRefresh = 30 * time.Second
)

// work is what durations are measured of.
type work struct {
	namespace string
	role      refitv1.Role
	// worst is the worst action: what takes a restart takes longer than what takes none.
	worst disruption.ActionType
}

// measured are durations of updates, out of the MachineUpdates that there are.
type measured struct {
	mu  sync.Mutex
	at  map[string]time.Time // by namespace
	p95 map[work]time.Duration
}

// expected returns how long the update is expected to take by those before it, or 0 when too few were measured. What it takes
// on the node is known once the node has planned it.
func (g *Gate) expected(ctx context.Context, s *Candidate, mu *refitv1.MachineUpdate) (time.Duration, error) {
	if mu.Status.Plan == nil {
		return 0, nil
	}
	m := &g.durations
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := g.Clock.Now(); m.at[s.Namespace].IsZero() || now.Sub(m.at[s.Namespace]) > durationsRefresh {
		var list refitv1.MachineUpdateList
		if err := g.Client.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
			return 0, fmt.Errorf("list MachineUpdates: %w", err)
		}
		if m.at == nil {
			m.at, m.p95 = map[string]time.Time{}, map[work]time.Duration{}
		}
		m.at[s.Namespace] = now
		measure(list.Items, m.p95)
	}
	return m.p95[work{s.Namespace, s.Role, worst(mu.Status.Plan.Actions)}], nil
}

// measure adds to p95 what 95 of 100 recent updates took at most, by kinds of work.
func measure(updates []refitv1.MachineUpdate, p95 map[work]time.Duration) {
	type sample struct {
		took     time.Duration
		finished time.Time
	}
	samples := map[work][]sample{}
	for _, mu := range updates {
		st := mu.Status
		if st.Phase != refitv1.PhaseSucceeded || st.Admission == nil || st.FinishedAt == nil {
			continue
		}
		w := work{mu.Namespace, st.Admission.Role, worst(st.Actions)}
		samples[w] = append(samples[w], sample{max(time.Second, st.FinishedAt.Sub(st.Admission.AdmittedAt.Time)), st.FinishedAt.Time})
	}
	for w, all := range samples {
		if len(all) < enoughSamples {
			continue
		}
		slices.SortFunc(all, func(a, b sample) int { return b.finished.Compare(a.finished) })
		all = all[:min(len(all), mostSamples)]
		slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.took, b.took) })
		p95[w] = all[(len(all)*95+99)/100-1].took
	}
}

// worst returns the worst of actions as they are written in a status.
func worst(actions []string) disruption.ActionType {
	types := make([]disruption.ActionType, len(actions))
	for i, a := range actions {
		name, _, _ := strings.Cut(a, " ")
		types[i] = disruption.ActionType(name)
	}
	return disruption.Worst(types...)
}
