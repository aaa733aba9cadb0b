package changemanagement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/schedule"
)

// What refit_change_management_change_pending says.
const (
	pendingNone       = 0
	pendingInitiating = 1
	pendingBlocked    = 2
)

var (
	groupLabels = []string{"namespace", "policy", "cluster", "role"}

	pendingDesc = prometheus.NewDesc("refit_change_management_change_pending",
		"Whether changes of machines under the policy are wanted: 0 none, 1 being made, 2 one or more held back, also before Cluster API has committed them.", groupLabels, nil)
	etaDesc = prometheus.NewDesc("refit_change_management_next_change_eta_seconds",
		"Seconds until the policy lets changes start that take as long as expected: 0 now, -1 not within 1000 days or paused, -2 the policy is invalid.", groupLabels, nil)
	remainingDesc = prometheus.NewDesc("refit_change_management_permissive_remaining_seconds",
		"Seconds that are left of the window, whether or not a change still fits: 0 closed, -1 unbounded, -2 the policy is invalid.", groupLabels, nil)
	lastChangeDesc = prometheus.NewDesc("refit_change_management_last_change_timestamp_seconds",
		"When changes were last permitted, which is now while they are, or one was last started, in seconds since 1970; no sample if that is not known.", groupLabels, nil)
	expectedDesc = prometheus.NewDesc("refit_change_management_expected_duration_seconds",
		"Seconds that an update of a machine under the policy is expected to take; 0: not known.", groupLabels, nil)
	deadlineDesc = prometheus.NewDesc("refit_change_management_deadline_timestamp_seconds",
		"When the first deadline of the changes that wait for the policy is, or was, in seconds since 1970; no sample if there is none.", groupLabels, nil)
	nearDesc = prometheus.NewDesc("refit_change_management_deadline_near",
		"How many changes wait for the policy whose deadline is near, by its warnBefore, or has passed; no sample if the policy has no deadline.", groupLabels, nil)
	strategyDesc = prometheus.NewDesc("refit_change_management_strategy_enabled",
		"Whether the policy has the strategy: 0 no, 1 yes.", []string{"namespace", "policy", "strategy"}, nil)
	overrideDesc = prometheus.NewDesc("refit_change_management_override_active",
		"1 while an override of the kind is in force for a machine of the cluster.", []string{"namespace", "cluster", "kind"}, nil)
	errorsDesc = prometheus.NewDesc("refit_change_management_collect_errors_total",
		"What could not be read when the metrics of change management were collected: then what was read last is shown, and a machine that can't be read is left out.", nil, nil)
)

// Collector shows to Prometheus what the policies mean. It reads caches when it is asked.
type Collector struct {
	Client client.Reader
	// Informers are those of the cache that the client reads. Nil: it is listed.
	Informers index.Informers
	Policies  *Policies
	Clock     clock.PassiveClock
	// Waits find out how long changes may wait. Nil: there are no deadlines.
	Waits *Waits

	mu     sync.Mutex
	last   *seen         // what was seen last
	took   time.Duration // how long that took
	errors int
}

var _ prometheus.Collector = (*Collector)(nil)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingDesc, etaDesc, remainingDesc, lastChangeDesc, expectedDesc, deadlineDesc, nearDesc, strategyDesc, overrideDesc, errorsDesc, jointDesc, apartDesc, unselectedDesc, gateDesc} {
		ch <- d
	}
}

// collectTimeout bounds what a scrape may take.
const collectTimeout = 10 * time.Second

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	all := c.Policies.All()
	if all == nil {
		return // they are about to be read
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, err := c.glance(ctx, all)
	if err != nil {
		// Series that end look as if all were well. An invalid metric would take all others with it.
		ctrl.Log.WithName("metrics").Error(err, "Could not collect the metrics of change management; showing those of before")
		c.errors++
		seen = c.last
	}
	ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(c.errors))
	if c.last = seen; seen == nil {
		return
	}
	for _, policies := range all {
		for _, p := range policies {
			for _, s := range []schedule.Strategy{schedule.MaintenanceScheduleStrategy, schedule.PermissiveStrategy, schedule.RestrictiveStrategy, schedule.ManualStrategy} {
				ch <- prometheus.MustNewConstMetric(strategyDesc, prometheus.GaugeValue, boolean(p.Strategy == s), p.Namespace, p.Title(), string(s))
			}
		}
	}
	for o := range seen.overrides {
		ch <- prometheus.MustNewConstMetric(overrideDesc, prometheus.GaugeValue, 1, o.namespace, o.cluster, o.kind)
	}
	for key, g := range seen.groups {
		g.collect(ch, key, seen.now)
	}
	for g, open := range seen.gates {
		ch <- prometheus.MustNewConstMetric(gateDesc, prometheus.GaugeValue, open, g.namespace, g.policy, g.gate)
	}
	seen.collectMachines(ch)
}

// groupKey is what the metrics are about. namespace is that of the machines: a policy of the platform has none, and machines in many.
type groupKey struct {
	policy             types.NamespacedName
	namespace, cluster string
	role               refitv1.Role
}

// group are the machines of a cluster and role under a policy.
type group struct {
	title    string // of the policy
	decision schedule.Decision
	// remaining is what is left of the window, in seconds.
	remaining int64
	pending   int
	last      time.Time
	expected  time.Duration
	// due is the first deadline of what waits, and near counts those that are near or have passed; -1 if the policy has none.
	due  *Due
	near int
	// asked are the changes that were asked about, where that has a say.
	asked map[string]bool
}

type overrideKey struct{ namespace, cluster, kind string }

// seen is what the metrics are made of.
type seen struct {
	now       time.Time
	groups    map[groupKey]*group
	overrides map[overrideKey]bool
	machines  map[machinesKey]*machinesOf
	gates     map[gateKey]float64
}

const (
	// lookShare is what part of the time may go into looks, as a divisor, however often metrics are asked for, and lookFor how old one may be at most.
	lookShare = 20
	lookFor   = 10 * time.Second
)

// glance returns what was seen a moment ago, or looks.
func (c *Collector) glance(ctx context.Context, all map[string][]*Policy) (*seen, error) {
	now := c.Clock.Now()
	if last := c.last; last != nil && !now.Before(last.now) && now.Sub(last.now) < min(lookShare*c.took, lookFor) {
		return last, nil
	}
	seen, err := c.look(ctx, all)
	c.took = c.Clock.Since(now)
	return seen, err
}

// look goes through all machines.
func (c *Collector) look(ctx context.Context, all map[string][]*Policy) (*seen, error) {
	var shown refitv1.ChangeManagementPolicyList
	if err := c.Client.List(ctx, &shown); err != nil {
		return nil, fmt.Errorf("list ChangeManagementPolicies: %w", err)
	}
	cached := index.Memory{Client: c.Client, Informers: c.Informers}
	update, err := index.Lookup[refitv1.MachineUpdate](ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("read MachineUpdates: %w", err)
	}
	waits, err := readUncommitted(ctx, c.Client, "")
	if err != nil {
		return nil, err
	}
	measured := estimates{}
	for i := range shown.Items {
		measured.read(&shown.Items[i])
	}
	now := c.Clock.Now()
	out := &seen{now: now, groups: map[groupKey]*group{}, overrides: map[overrideKey]bool{}, machines: map[machinesKey]*machinesOf{}, gates: gatesShown(shown.Items)}
	err = index.Each(ctx, cached, index.Where{}, &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
		mu, err := update(client.ObjectKeyFromObject(m))
		if err != nil {
			return fmt.Errorf("read MachineUpdate %s/%s: %w", m.Namespace, m.Name, err)
		}
		return c.lookAt(ctx, out, m, mu, measured)
	})
	if err != nil {
		return nil, fmt.Errorf("look at Machines: %w", err)
	}
	out.addUncommitted(waits, all)
	out.addIdle(now, all)
	return out, nil
}

// lookAt adds a Machine and its update, which is nil if there is none.
func (c *Collector) lookAt(ctx context.Context, out *seen, m *clusterv1.Machine, mu *refitv1.MachineUpdate, measured estimates) error {
	s, err := (Candidates{c.Client}).Machine(ctx, m)
	if client.IgnoreNotFound(err) != nil {
		if ctx.Err() != nil {
			return err
		}
		c.errors++
		return nil
	}
	policies, err := c.Policies.Select(s)
	if err != nil {
		return err
	}
	out.note(out.now, s, policies, mu)
	out.join(s, policies, measured, waitingFor(mu))
	wait, err := c.wait(ctx, s, m, mu, policies)
	if err != nil {
		return err
	}
	for _, p := range policies {
		out.add(out.now, p, s, mu, measured)
		out.groups[groupKey{p.NamespacedName, s.Namespace, s.Cluster, s.Role}].meet(out.now, p.due(wait))
	}
	return nil
}

// addIdle adds the policies that select no machine, without a cluster and a role: one that is invalid has to be seen before
// there are machines under it.
func (o *seen) addIdle(now time.Time, all map[string][]*Policy) {
	busy := map[types.NamespacedName]bool{}
	for key := range o.groups {
		busy[key.policy] = true
	}
	for _, policies := range all {
		for _, p := range policies {
			if !busy[p.NamespacedName] {
				o.groups[groupKey{policy: p.NamespacedName, namespace: p.Namespace}] = newGroup(now, p, &Candidate{}, nil)
			}
		}
	}
}

// note notes the overrides in force.
func (o *seen) note(now time.Time, s *Candidate, policies []*Policy, mu *refitv1.MachineUpdate) {
	digest := ""
	if mu != nil {
		digest = mu.ChangeID()
	}
	all := s.Overrides.at(now, digest, maxOverrideOf(policies)).by
	for _, p := range policies {
		all = append(all, p.Own.at(now, digest, p.MaxOverride).by...)
	}
	for _, override := range all {
		o.overrides[overrideKey{s.Namespace, s.Cluster, override.Kind}] = true
	}
}

func newGroup(now time.Time, p *Policy, s *Candidate, measured estimates) *group {
	g := &group{title: p.Title(), expected: measured.longest(s.Role, p)}
	if p.Deadline == nil {
		g.near = -1
	}
	g.decision = g.ask(now, p.Schedule.Widest())
	g.expected = cmp.Or(g.expected, p.Schedule.ExpectedDuration())
	g.remaining = remaining(now, g.decision, p.Schedule.Widest())
	for w := range schedule.PastWindows(now, now.Add(-schedule.DefaultHorizon), p.Schedule.Widest()) {
		g.last = w.End
		break
	}
	return g
}

// remaining returns what is left of a window, also if a change no longer fits: that is what operators have to be told of.
func remaining(now time.Time, d schedule.Decision, s *schedule.Schedule) int64 {
	if d.Open || d.Reason == schedule.InvalidPolicy {
		return d.PermissiveRemainingSeconds
	}
	for w := range schedule.Windows(now, now.Add(time.Second), s) {
		if !now.Before(w.Start) && now.Before(w.End) {
			return int64((w.End.Sub(now) + time.Second - 1) / time.Second)
		}
	}
	return 0
}

func (o *seen) add(now time.Time, p *Policy, s *Candidate, mu *refitv1.MachineUpdate, measured estimates) {
	key := groupKey{p.NamespacedName, s.Namespace, s.Cluster, s.Role}
	g := o.groups[key]
	if g == nil {
		g = newGroup(now, p, s, measured)
		o.groups[key] = g
	}
	if mu == nil {
		return
	}
	switch {
	case Holds(mu):
		g.pending = pendingBlocked
		g.wait(now, p, waitingFor(mu))
	case mu.Status.ObservedDigest != mu.Spec.Digest || !slices.Contains([]refitv1.Phase{refitv1.PhaseSucceeded, refitv1.PhaseFailed}, mu.Status.Phase):
		g.pending = max(g.pending, pendingInitiating)
	}
	if len(mu.Status.Starts) > 0 && mu.Status.Starts[0].After(g.last) {
		g.last = mu.Status.Starts[0].Time
	}
}

// lastChange returns when changes were last permitted, or one was last started; zero if that is not known.
func (g *group) lastChange(now time.Time) time.Time {
	if g.decision.Open {
		return now
	}
	return g.last
}

func (g *group) collect(ch chan<- prometheus.Metric, key groupKey, now time.Time) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, key.namespace, g.title, key.cluster, string(key.role))
	}
	gauge(pendingDesc, float64(g.pending))
	gauge(etaDesc, float64(g.decision.NextChangeETASeconds))
	gauge(remainingDesc, float64(g.remaining))
	if last := g.lastChange(now); !last.IsZero() {
		gauge(lastChangeDesc, float64(last.Unix()))
	}
	gauge(expectedDesc, g.expected.Seconds())
	if g.near >= 0 {
		gauge(nearDesc, float64(g.near))
	}
	if g.due != nil {
		gauge(deadlineDesc, float64(g.due.At.Unix()))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
