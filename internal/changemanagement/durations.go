package changemanagement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

const (
	// enoughSamples is how many updates make a measurement: with fewer, the 95th percentile is the longest.
	enoughSamples = 20
	// mostSamples is how many are kept, the latest ones.
	mostSamples = 40
	// memory is for how long one is kept.
	memory = 90 * 24 * time.Hour
	// outlier is how many times as long as expected, or as half of the others, an update counts as at most.
	outlier = 3
	// durationsRefresh is how old a measurement may be.
	durationsRefresh = 30 * time.Second
)

// work is what durations are measured of.
type work struct {
	policy types.NamespacedName
	role   refitv1.Role
	// worst is the worst action: what takes a restart takes longer than what takes none.
	worst disruption.ActionType
}

// estimates are how long updates are expected to take by what was measured, as the policies' statuses have it.
type estimates map[work]time.Duration

// read reads the estimates of a policy.
func (e estimates) read(p *refitv1.ChangeManagementPolicy) {
	for _, d := range p.Status.Durations {
		if d.Seconds != nil {
			e[work{client.ObjectKeyFromObject(p), d.Role, disruption.ActionType(d.Disruption)}] = time.Duration(*d.Seconds) * time.Second
		}
	}
}

// longest returns the longest estimate of any work of a role under policies; 0: there is none.
func (e estimates) longest(role refitv1.Role, policies ...*Policy) time.Duration {
	var out time.Duration
	for w, d := range e {
		if w.role == role && slices.ContainsFunc(policies, func(p *Policy) bool { return p.NamespacedName == w.policy }) {
			out = max(out, d)
		}
	}
	return out
}

// measured are the estimates of namespaces.
type measured struct {
	mu sync.Mutex
	of map[string]measurement
}

type measurement struct {
	at time.Time
	estimates
}

// expected returns how long the update is expected to take by those before it under its policies, or 0 when too few were measured. What it takes
// on the node is known once the node has planned it.
func (g *Gate) expected(ctx context.Context, r *record) (time.Duration, error) {
	if r.worst == "" {
		return 0, nil
	}
	known, err := g.measured(ctx, r.candidate.Namespace)
	if err != nil {
		return 0, err
	}
	var longest time.Duration
	for _, p := range r.policies {
		longest = max(longest, known[work{p.NamespacedName, r.candidate.Role, r.worst}])
	}
	return longest, nil
}

// measured returns the estimates of a namespace.
func (g *Gate) measured(ctx context.Context, namespace string) (estimates, error) {
	m := &g.durations
	m.mu.Lock()
	defer m.mu.Unlock()
	now := g.Clock.Now()
	known, ok := m.of[namespace]
	if ok && now.Sub(known.at) <= durationsRefresh {
		return known.estimates, nil
	}
	var list refitv1.ChangeManagementPolicyList
	if err := g.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ChangeManagementPolicies: %w", err)
	}
	known = measurement{now, estimates{}}
	for i := range list.Items {
		known.read(&list.Items[i])
	}
	if m.of == nil {
		m.of = map[string]measurement{}
	}
	m.of[namespace] = known
	return known.estimates, nil
}

// learner adds to a status what updates have taken, as they are seen.
type learner struct {
	now     time.Time
	samples map[work][]refitv1.DurationSample
}

func newLearner(now time.Time, st *refitv1.ChangeManagementPolicyStatus) *learner {
	l := &learner{now: now, samples: map[work][]refitv1.DurationSample{}}
	for _, d := range st.Durations {
		l.samples[work{role: d.Role, worst: disruption.ActionType(d.Disruption)}] = slices.Clone(d.Samples)
	}
	return l
}

// see takes an update that has succeeded. Each counts once.
func (l *learner) see(mu *refitv1.MachineUpdate) {
	st := mu.Status
	if st.Phase != refitv1.PhaseSucceeded || st.Admission == nil || st.Admission.Role == "" || st.FinishedAt == nil || st.WorstAction == "" {
		return
	}
	s := refitv1.DurationSample{
		Machine: mu.Name, FinishedAt: *st.FinishedAt,
		Seconds: int64(max(time.Second, st.FinishedAt.Sub(st.Admission.AdmittedAt.Time)) / time.Second),
	}
	w := work{role: st.Admission.Role, worst: disruption.ActionType(st.WorstAction).OrReplace()}
	known := func(o refitv1.DurationSample) bool {
		return o.Machine == s.Machine && o.FinishedAt.Equal(&s.FinishedAt)
	}
	if !slices.ContainsFunc(l.samples[w], known) {
		l.samples[w] = append(l.samples[w], s)
	}
}

// write writes what is known into a status. prior is how long an update is expected to take where nothing was measured; 0: not known.
func (l *learner) write(st *refitv1.ChangeManagementPolicyStatus, prior time.Duration) {
	st.Durations = nil
	for w, all := range l.samples {
		all = slices.DeleteFunc(all, func(s refitv1.DurationSample) bool { return l.now.Sub(s.FinishedAt.Time) > memory })
		slices.SortFunc(all, func(a, b refitv1.DurationSample) int {
			return cmp.Or(b.FinishedAt.Compare(a.FinishedAt.Time), cmp.Compare(a.Machine, b.Machine))
		})
		if all = all[:min(len(all), mostSamples)]; len(all) == 0 {
			continue
		}
		st.Durations = append(st.Durations, refitv1.MeasuredDuration{
			Role: w.role, Disruption: string(w.worst), Seconds: estimate(all, prior), Samples: all,
		})
	}
	slices.SortFunc(st.Durations, func(a, b refitv1.MeasuredDuration) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Disruption, b.Disruption))
	})
}

// estimate returns in seconds what 95 of 100 updates took at most, nil if there are too few. One that took very long says that something was wrong,
// and not how long the next one takes.
func estimate(samples []refitv1.DurationSample, prior time.Duration) *int64 {
	n := len(samples)
	if n < enoughSamples {
		return nil
	}
	took := make([]int64, n)
	for i, s := range samples {
		took[i] = s.Seconds
	}
	slices.Sort(took)
	limit := outlier * max(took[n/2], int64(prior/time.Second))
	return new(min(took[(n*95+99)/100-1], limit))
}
