package changemanagement

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/schedule"
)

// answers are what health gates answer, by their names; for a gate of clusters by name and cluster.
type answers struct {
	mu  sync.Mutex
	all map[string]health.Answer
	// stale are those that are too old.
	stale map[string]bool
	// asked are the gates that somebody was interested in.
	asked map[string]bool
}

func (a *answers) Latest(_ health.Policy, g *health.Gate, cluster string) (health.Answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := g.Name
	if g.OfCluster {
		name += " " + cluster
	}
	if a.asked == nil {
		a.asked = map[string]bool{}
	}
	a.asked[name] = true
	answer, ok := a.all[name]
	return answer, ok && !a.stale[name]
}

func (a *answers) Ask(_ context.Context, of health.Policy, g *health.Gate, cluster string, since time.Time) (health.Answer, error) {
	answer, ok := a.Latest(of, g, cluster)
	if !ok || answer.At.Before(since) {
		return answer, errors.New("nobody answers")
	}
	return answer, nil
}

func (a *answers) Known(health.Policy) map[string]map[string]health.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]map[string]health.Answer{}
	for name, answer := range a.all {
		out[name] = map[string]health.Answer{"": answer}
	}
	return out
}

func (a *answers) set(gate string, answer health.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]health.Answer{}
	}
	a.all[gate] = answer
}

func answering(at time.Time) health.Answer {
	return health.Answer{State: refitv1.GatePassing, Since: at, At: at}
}

func shut(at time.Time, says string) health.Answer {
	return health.Answer{State: refitv1.GateFailing, Since: at, At: at, Says: says}
}

// gated has a policy have health gates of names, about objects of the management cluster.
func gated(names ...string) edit {
	return func(s *spec) {
		for _, name := range names {
			s.Gates = append(s.Gates, refitv1.HealthGate{Name: name, CEL: &refitv1.CELGate{
				Expression: "web.status.ready",
				Objects:    []refitv1.GateObject{{Name: "web", Cluster: refitv1.ManagementCluster, APIVersion: "apps/v1", Kind: "Deployment", ObjectName: "web"}},
			}})
		}
	}
}

// ofClusters has gates be about the workload clusters.
func ofClusters(s *spec) {
	for i := range s.Gates {
		s.Gates[i].CEL.Objects[0].Cluster = refitv1.WorkloadCluster
	}
}

func ignoringErrors(s *spec) {
	for i := range s.Gates {
		s.Gates[i].OnError = refitv1.IgnoreOnUnknown
	}
}

// healthy has the gate be answered.
func (w *world) healthy() *answers {
	a := &answers{}
	w.gate.Health = a
	return a
}

func TestHealthGates(t *testing.T) {
	since := inside.Add(-time.Minute)
	unknown := health.Answer{State: refitv1.GateUnknown, Since: since, At: since, Says: "it is away"}
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		answers  map[string]health.Answer
		stale    string
		machine  map[string]string
		reason   schedule.Reason
		says     string
	}{
		"it holds":                            {policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": answering(since)}, reason: schedule.Open},
		"it was not asked":                    {policies: some(saturdays("a", gated("errors"))), reason: schedule.GateUnknown, says: "policy a: health gate errors has not been asked yet; it is asked every 15s while something waits, and updates start when it holds"},
		"it does not hold":                    {policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")}, reason: schedule.GateFailed, says: "policy a: health gate errors does not hold since " + text(since) + ": it is 0.031; it is asked every 15s"},
		"it did not, and was not asked since": {policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")}, stale: "errors", reason: schedule.GateFailed, says: "it is 0.031"},
		"it held, too long ago":               {policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": answering(since)}, stale: "errors", reason: schedule.GateUnknown, says: "what health gate errors has answered last is too old"},
		"it can't be asked":                   {policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": unknown}, reason: schedule.GateUnknown, says: "health gate errors can't be asked since " + text(since) + ": it is away"},
		"it can't, which is ignored":          {policies: some(saturdays("a", gated("errors"), ignoringErrors)), answers: map[string]health.Answer{"errors": unknown}, reason: schedule.Open},
		"it could not, too long ago":          {policies: some(saturdays("a", gated("errors"), ignoringErrors)), answers: map[string]health.Answer{"errors": unknown}, stale: "errors", reason: schedule.GateUnknown, says: "it is away"},
		"one of two does not":                 {policies: some(saturdays("a", gated("web", "errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031"), "web": answering(since)}, reason: schedule.GateFailed, says: "errors"},
		"what fails is told first":            {policies: some(saturdays("a", gated("web", "errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")}, reason: schedule.GateFailed, says: "and 1 other health gates don't, or are not known to"},
		"another policy's does not":           {policies: some(saturdays("a"), anytime("b", gated("errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")}, reason: schedule.GateFailed, says: "policy b"},
		"outside of the window":               {policies: some(weekly("a", "WE", gated("errors"))), reason: schedule.OutsideWindow},
		"of this cluster it does not":         {policies: some(saturdays("a", gated("web"), ofClusters)), answers: map[string]health.Answer{"web c1": shut(since, "none"), "web c2": answering(since)}, reason: schedule.GateFailed, says: "none"},
		"of another it does not":              {policies: some(saturdays("a", gated("web"), ofClusters)), answers: map[string]health.Answer{"web c2": shut(since, "none"), "web c1": answering(since)}, reason: schedule.Open},
		"the change is bypassed": {
			policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")}, machine: map[string]string{bypassKey: "digest-w"},
			reason: schedule.Overridden, says: "which passes health gate errors of policy a, which does not hold",
		},
		"policies are open for a while": {
			policies: some(saturdays("a", gated("errors"))), answers: map[string]health.Answer{"errors": shut(since, "it is 0.031")},
			machine: map[string]string{permissiveKey: text(inside.Add(time.Hour))}, reason: schedule.GateFailed, says: "it is 0.031",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := worker("w")
			m.Annotations = noted(tc.machine)
			w := newWorld(t, cluster("c1", nil, nil), m, update("w", waiting))
			a := w.healthy()
			for _, p := range tc.policies {
				w.addPolicy(p)
			}
			for gate, answer := range tc.answers {
				a.set(gate, answer)
			}
			a.stale = map[string]bool{tc.stale: true}
			for range 2 { // also for who is about to start
				d := w.ask("w")
				require.Equal(t, tc.reason, d.Reason, d.Message)
				require.Contains(t, d.Message, tc.says)
				require.Equal(t, tc.reason == schedule.Open || tc.reason == schedule.Overridden, d.Open)
				require.Equal(t, d.Open, w.admit("w").Open)
				w.edit("w", waiting)
			}
			if tc.reason == schedule.OutsideWindow {
				require.Empty(t, a.asked, "nobody asks for what does not matter")
			}
		})
	}
}

// TestNobodyAnswersHere: where nobody asks gates, what has some does not start.
func TestNobodyAnswersHere(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting}}, nil, saturdays("a", gated("errors")))...)
	d := w.ask("w")
	require.Equal(t, schedule.GateUnknown, d.Reason)
	require.False(t, d.HoldsAll(), "what does not disturb the node goes ahead, as with a budget")
	require.True(t, d.Within(), "nodes go on to be compared")
	require.True(t, d.Frees)
}

// aboutASecret has gates be about a Secret, in a spelling that an API server takes.
func aboutASecret(s *spec) {
	for i := range s.Gates {
		o := &s.Gates[i].CEL.Objects[0]
		o.APIVersion, o.Kind = "/v1", "Secret"
	}
}

// TestTheGatesOfAnInvalidPolicyAreNotAsked, also by who does not ask whether it is open.
func TestTheGatesOfAnInvalidPolicyAreNotAsked(t *testing.T) {
	for name, edits := range map[string][]edit{
		"a Secret":           {gated("errors"), aboutASecret},
		"a URL that may not": {gated("errors")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fleet(map[string]states{"w": {waiting}, "x": soaks(inside)}, nil)...)
			w.policies.MayAsk = func(*health.Gate) error { return errors.New("refit may not ask there") }
			w.addPolicy(saturdays("a", edits...))
			a := w.healthy()
			a.set("errors", shut(inside, "token is hunter2"))
			require.Equal(t, schedule.InvalidPolicy, w.ask("w").Reason)
			w.Reconcile(&Soaks{Gate: w.gate, Recorder: w.Events}, "x")
			require.Empty(t, a.asked, "while a node soaks")
			w.RequireNoEvent()
		})
	}
}

// TestABypassOfThePlatformsPolicyOpensThatAlone: whoever runs the platform knows nothing of what the namespace measures.
func TestABypassOfThePlatformsPolicyOpensThatAlone(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w"), update("w", waiting), namespace("fleet", nil), saturdays("a", gated("errors")),
		platform(policy("p", schedule.RestrictiveStrategy), annotatedPolicy(bypassKey, "digest-w")))
	a := w.healthy()
	a.set("errors", shut(inside, "it is 0.031"))
	d := w.ask("w")
	require.False(t, d.Open, d.Message)
}

// TestAGateOfOneClusterIsInNobodysWayElsewhere: who can't start now does not take the place of one that can.
func TestAGateOfOneClusterIsInNobodysWayElsewhere(t *testing.T) {
	w := newWorld(t, append(fleet(map[string]states{"old": {waiting, configured(9)}}, nil,
		saturdays("a", gated("web"), ofClusters, budget(refitv1.Budget{MaxConcurrent: 1}))),
		client.Object(cluster("c2", nil, nil)), worker("young", inCluster("c2")), update("young", waiting, configured(1)))...)
	a := w.healthy()
	a.set("web c1", shut(inside, "none"))
	a.set("web c2", answering(inside))
	require.Equal(t, schedule.GateFailed, w.ask("old").Reason)
	d := w.ask("young")
	require.True(t, d.Open, d.Message)
	next, err := w.gate.Next(t.Context(), "fleet", 10)
	require.NoError(t, err)
	require.Len(t, next, 1)
	require.Equal(t, "young", next[0].Name)
	a.set("web c1", answering(inside))
	w.Clock.SetTime(inside.Add(2 * time.Second))
	require.Equal(t, schedule.BudgetExhausted, w.ask("young").Reason, "the oldest first")
}

// soaks has the update of x soak since an instant.
func soaks(at time.Time) states {
	return states{started(at.Add(-time.Minute)), identified, func(mu *refitv1.MachineUpdate) {
		mu.Status.SoakingSince = &metav1.Time{Time: at}
	}}
}

func TestAGateThatFailsWhileANodeSoaks(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": soaks(inside)}, nil,
		saturdays("a", gated("errors"), budget(refitv1.Budget{StopAfterFailures: 1})))...)
	a, s := w.healthy(), w.status()
	r := &Soaks{Gate: w.gate, Recorder: w.Events}
	a.set("errors", answering(inside))
	require.Equal(t, 15*time.Second, w.Reconcile(r, "x").RequeueAfter, "for as long as it soaks")
	require.True(t, w.ask("w").Open)
	w.RequireNoEvent()

	later := inside.Add(15 * time.Second)
	w.Clock.SetTime(later)
	a.set("errors", shut(later, "it is 0.031"))
	w.Reconcile(r, "x")
	w.RequireEvent("Warning HealthGateFailed while the node soaked, health gate errors of policy a did not hold: it is 0.031")
	w.Reconcile(r, "x")
	w.RequireNoEvent("it is told once in a soak")
	require.Equal(t, schedule.GateFailed, w.ask("w").Reason)

	// It holds again, and the update succeeds: it counts as one that has failed all the same.
	a.set("errors", answering(later.Add(15*time.Second)))
	w.edit("x", ended, func(mu *refitv1.MachineUpdate) { mu.Status.SoakingSince = nil })
	require.Zero(t, w.Reconcile(r, "x"))
	for _, how := range []string{"before the ledger has it", "by the ledger", "by another leader"} {
		w.Clock.SetTime(w.Clock.Now().Add(2 * time.Second))
		d := w.ask("w")
		require.Equal(t, schedule.BudgetExhausted, d.Reason, how)
		require.Contains(t, d.Message, "stopAfterFailures")
		require.Contains(t, d.Message, "status.ledger.gateFailures")
		st, _ := w.show(s)
		require.Len(t, st.Ledger.GateFailures, 1)
		require.Equal(t, refitv1.GateFailure{
			LedgerEntry: refitv1.LedgerEntry{Machine: "x", Update: "uid-x", At: metav1.NewTime(st.Ledger.GateFailures[0].At.Time)}, Gate: "errors", Message: "it is 0.031",
		}, st.Ledger.GateFailures[0])
		require.True(t, st.Ledger.GateFailures[0].At.Time.Equal(later))
		if how == "by the ledger" {
			w.newLeader()
			w.gate.Health = a
			s = w.status()
		}
	}
	p := get(w, "a", &refitv1.ChangeManagementPolicy{})
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, refitv1.FailuresSeenAnnotation, text(w.Clock.Now()))
	require.NoError(t, w.Update(t.Context(), p))
	w.Clock.SetTime(w.Clock.Now().Add(2 * time.Second))
	require.True(t, w.ask("w").Open, "somebody has looked")
	st, _ := w.show(s)
	require.True(t, st.Ledger == nil || len(st.Ledger.GateFailures) == 0)
}

// TestOneUpdateFailsOnce: one that failed, and during whose soak a gate did not hold, counts once; so do several gates.
func TestOneUpdateFailsOnce(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": soaks(inside)}, nil,
		saturdays("a", gated("errors", "web"), budget(refitv1.Budget{StopAfterFailures: 2})))...)
	a := w.healthy()
	r := &Soaks{Gate: w.gate, Recorder: w.Events}
	a.set("errors", shut(inside, "it is 0.031"))
	a.set("web", shut(inside, "none"))
	w.Reconcile(r, "x")
	w.edit("x", failed)
	a.set("errors", answering(inside))
	a.set("web", answering(inside))
	d := w.ask("w")
	require.True(t, d.Open, d.Message)
}

// TestAnotherPolicyOfTheNameHasNotFailed: what failed under the one that is gone is nothing that its successor knows.
func TestAnotherPolicyOfTheNameHasNotFailed(t *testing.T) {
	stops := budget(refitv1.Budget{StopAfterFailures: 1})
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": soaks(inside)}, nil, saturdays("a", gated("errors"), stops))...)
	a := w.healthy()
	a.set("errors", shut(inside, "it is 0.031"))
	w.Reconcile(&Soaks{Gate: w.gate, Recorder: w.Events}, "x")
	a.set("errors", answering(inside))
	require.Equal(t, schedule.BudgetExhausted, w.ask("w").Reason)
	require.NoError(t, w.Delete(t.Context(), w.Policy("a")))
	other := saturdays("a", gated("errors"), stops)
	other.UID = "another"
	w.addPolicy(other)
	w.Clock.SetTime(inside.Add(2 * time.Second))
	d := w.ask("w")
	require.True(t, d.Open, d.Message)
	st, _ := w.show(w.status())
	require.True(t, st.Ledger == nil || len(st.Ledger.GateFailures) == 0)
}

func TestAnAnswerOfBeforeTheSoakCountsForNothing(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"x": soaks(inside)}, nil, saturdays("a", gated("errors"), budget(refitv1.Budget{StopAfterFailures: 1})))...)
	a := w.healthy()
	a.set("errors", shut(inside.Add(-time.Second), "it is 0.031"))
	w.Reconcile(&Soaks{Gate: w.gate, Recorder: w.Events}, "x")
	w.RequireNoEvent()
	// Nor does a gate that can't be asked.
	a.set("errors", health.Answer{State: refitv1.GateUnknown, Since: inside, At: inside, Says: "it is away"})
	w.Reconcile(&Soaks{Gate: w.gate, Recorder: w.Events}, "x")
	w.RequireNoEvent()
}

func TestWhatStatusAndMetricSayOfGates(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting}}, nil, saturdays("a", gated("errors", "web", "late", "unasked")))...)
	a, s := w.healthy(), w.status()
	a.set("errors", shut(inside.Add(1500*time.Millisecond), "it is 0.031"))
	a.set("web", answering(inside))
	a.set("late", health.Answer{State: refitv1.GateUnknown, Since: inside, At: inside, Says: "it is away"})
	st, _ := w.show(s)
	require.Equal(t, []string{"errors Failing it is 0.031", "late Unknown it is away", "web Passing "}, func() (out []string) {
		for _, g := range st.Gates {
			out = append(out, g.Name+" "+string(g.State)+" "+g.Message)
		}
		return out
	}())
	version := w.Policy("a").ResourceVersion
	a.set("errors", health.Answer{State: refitv1.GateFailing, Since: inside.Add(1500 * time.Millisecond), At: inside.Add(time.Minute), Says: "it is 0.031"})
	w.show(s)
	require.Equal(t, version, w.Policy("a").ResourceVersion, "the same answer is no news")
	collector := &Collector{Client: w, Policies: w.policies, Clock: w.Clock}
	w.registry.MustRegister(collector)
	for gate, want := range map[string]float64{"errors": 0, "web": 1, "late": -1} {
		require.InDelta(t, want, sample(t, w, gate), 0, gate)
	}
	require.Equal(t, 3, testutil.CollectAndCount(collector, "refit_change_management_gate_open"), "nobody asks the fourth one")
}

// sample returns what the metric says of a gate.
func sample(t *testing.T, w *world, gate string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "refit_change_management_gate_open" && l.GetName() == "gate" && l.GetValue() == gate {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	require.Fail(t, "no sample")
	return 0
}

func TestPoliciesWithGatesThatCantBeAsked(t *testing.T) {
	prometheus := func(s *spec) {
		s.Gates = []refitv1.HealthGate{{Name: "errors", Prometheus: &refitv1.PrometheusGate{
			URL: "https://prometheus.example.org", Query: "up", MustBe: refitv1.Comparison{Operator: refitv1.Equal, Value: "1"},
		}}}
	}
	mistaken := func(s *spec) { s.Gates[0].CEL.Expression = "db.ready" }
	w := newWorld(t, fleet(map[string]states{"w": {waiting}}, nil)...)
	w.addPolicy(anytime("a", gated("web"), mistaken))
	d := w.ask("w")
	require.Equal(t, schedule.InvalidPolicy, d.Reason)
	require.Contains(t, d.Message, "gates[0].cel.expression: ERROR: <input>:1:1: undeclared reference to 'db'")
	w.Change("a", func(s *spec) { s.Gates = nil }, prometheus)
	w.Reread("a")
	require.Equal(t, schedule.GateUnknown, w.ask("w").Reason)
	w.policies.MayAsk = health.URLs(nil).Allow
	w.Reread("a")
	d = w.ask("w")
	require.Equal(t, schedule.InvalidPolicy, d.Reason)
	require.Contains(t, d.Message, "gates[0].prometheus.url: refit may not ask there")
	allowed, err := health.ParseURLs([]string{"https://prometheus.example.org"})
	require.NoError(t, err)
	w.policies.MayAsk = allowed.Allow
	w.Reread("a")
	require.Equal(t, schedule.GateUnknown, w.ask("w").Reason)
}

// TestAHealthGateHoldsPastADeadline: what has waited for long enough still does not start while things are not well.
func TestAHealthGateHoldsPastADeadline(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", since(outside.Add(-30*day)), takes("Restart"))).withDeadlines(nil)
	w.addPolicy(saturdays("a", opensAfter("30d"), gated("errors")))
	a := w.healthy()
	w.Clock.SetTime(outside)
	a.set("errors", shut(outside, "it is 0.031"))
	require.Equal(t, schedule.GateFailed, w.ask("w1").Reason)
	a.set("errors", answering(outside))
	require.Equal(t, schedule.DeadlinePassed, w.ask("w1").Reason)
}
