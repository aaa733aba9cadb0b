package changemanagement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// collected are the series of some of the metrics, without their prefix, help and type. They come out of a registry, which
// refuses those that are there twice.
func (w *world) collected(names ...string) string {
	w.T.Helper()
	return gathered(w.T, &Collector{Client: w, Policies: w.policies, Clock: w.Clock}, names...)
}

func gathered(t testing.TB, c *Collector, names ...string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
	var lines []string
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "refit_change_management_")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestNothingIsCollectedBeforeThePoliciesWereRead(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), saturdays("a"))
	require.NotEmpty(t, w.collected())
	w.policies = NewPolicies(nil, nil, nil)
	require.Empty(t, w.collected())
}

// unlooked stands for a time that is not looked at.
var unlooked = time.Unix(1, 0)

func TestCollectedDurations(t *testing.T) {
	for name, tc := range map[string]struct {
		policy         *refitv1.ChangeManagementPolicy
		now            time.Time
		updates        []client.Object
		eta, remaining string
		last           time.Time // zero: not known
		expected       string
	}{
		"open":                           {saturdays("a"), inside, nil, "0", "25200", inside, "0"},
		"its last second":                {saturdays("a"), closes.Add(-time.Second), nil, "0", "1", closes.Add(-time.Second), "0"},
		"closed":                         {saturdays("a"), closes, nil, "576000", "0", closes, "0"},
		"closed for an hour":             {saturdays("a"), closes.Add(time.Hour), nil, "572400", "0", closes, "0"},
		"always open":                    {anytime("a"), inside, nil, "0", "-1", inside, "0"},
		"paused":                         {never("a"), inside, nil, "-1", "0", time.Time{}, "0"},
		"paused, after one was started":  {never("a"), inside, []client.Object{update("w1", started(inside.Add(-time.Minute)), ended)}, "-1", "0", inside.Add(-time.Minute), "0"},
		"invalid":                        {onMars("a"), inside, nil, "-2", "-2", time.Time{}, "0"},
		"what a policy expects":          {saturdays("a", expects("20m")), inside, nil, "0", "25200", inside, "1200"},
		"open, but too short":            {saturdays("a", expects("2h")), closes.Add(-time.Hour), nil, "579600", "3600", unlooked, "7200"},
		"overrides are not the policy's": {saturdays("a"), closes, []client.Object{worker("w2", annotated(bypassKey, "x"), annotated(permissiveKey, text(closes.Add(time.Hour))))}, "576000", "0", closes, "0"},
		"what was measured":              {took1(time.Minute, expects("20m")), inside, nil, "0", "25200", inside, "60"},
		"measured to fit no window":      {took1(20*time.Hour, expects("20m")), closes, nil, "576000", "0", closes, "72000"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.updates, cluster("c1", nil, nil), worker("w1"), tc.policy)...)
			w.Clock.SetTime(tc.now)
			const group = `{cluster="c1",namespace="fleet",policy="a",role="Worker"} `
			for metric, want := range map[string]string{
				"next_change_eta_seconds": tc.eta, "permissive_remaining_seconds": tc.remaining, "expected_duration_seconds": tc.expected,
			} {
				require.Equal(t, metric+group+want, w.collected(metric))
			}
			const last = "last_change_timestamp_seconds"
			switch tc.last {
			case unlooked:
			case time.Time{}:
				require.Empty(t, w.collected(last))
			default:
				require.Equal(t, fmt.Sprint(last+group, float64(tc.last.Unix())), w.collected(last))
			}
		})
	}
}

// took1 is a policy under which reboots of workers were measured to take so long.
func took1(d time.Duration, edits ...edit) *refitv1.ChangeManagementPolicy {
	p := saturdays("a", edits...)
	p.Status.Durations = []refitv1.MeasuredDuration{{Role: refitv1.WorkerRole, Disruption: "Reboot", Seconds: new(int64(d / time.Second))}}
	return p
}

// TestCollectedTogether looks at what all policies of Machines mean together.
func TestCollectedTogether(t *testing.T) {
	gpu := machines(map[string]string{"pool": "gpu"})
	for name, tc := range map[string]struct {
		policies        []client.Object
		eta, unselected string
		apart           string // 0 if empty
	}{
		"none":                             {policies: nil, eta: "", unselected: "2"},
		"open":                             {policies: []client.Object{saturdays("a")}, eta: "0", unselected: "0"},
		"they meet later":                  {policies: []client.Object{saturdays("a"), weekly("b", "SU"), anytime("c")}, eta: "-1", unselected: "0", apart: "2"},
		"they meet on Sunday":              {policies: []client.Object{weekly("a", "SA,SU"), weekly("b", "SU")}, eta: "82800", unselected: "0"},
		"one never opens":                  {policies: []client.Object{saturdays("a"), never("b")}, eta: "-1", unselected: "0"},
		"never, beside one that is paused": {policies: []client.Object{weekly("a", "SA"), weekly("b", "SU", gpu), never("c", machines(map[string]string{"pool": "cpu"})), worker("w3", ofPool("cpu"))}, eta: "-1", unselected: "0", apart: "1"},
		"one is invalid":                   {policies: []client.Object{never("a"), onMars("b")}, eta: "-2", unselected: "0"},
		"one Machine's is further away":    {policies: []client.Object{saturdays("a"), weekly("b", "SA,SU", gpu), weekly("c", "SU", gpu)}, eta: "-1", unselected: "0", apart: "1"},
		"one Machine has none":             {policies: []client.Object{saturdays("a", gpu)}, eta: "0", unselected: "1"},
		"overrides are of no account":      {policies: []client.Object{saturdays("a"), cluster("c2", nil, map[string]string{restrictiveKey: "true"})}, eta: "0", unselected: "0"},
		"what was measured fits no window": {policies: []client.Object{took1(20*time.Hour, expects("20m"))}, eta: "0", unselected: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.policies, cluster("c1", nil, nil), worker("w1"), worker("w2", ofPool("gpu")))...)
			want := ""
			if tc.eta != "" {
				want = `joint_next_change_eta_seconds{cluster="c1",namespace="fleet",role="Worker"} ` + tc.eta
			}
			require.Equal(t, want, w.collected("joint_next_change_eta_seconds"))
			require.Equal(t, `unselected_machines{cluster="c1",namespace="fleet",role="Worker"} `+tc.unselected, w.collected("unselected_machines"))
			apart := ""
			if tc.eta != "" {
				apart = `never_meeting_machines{cluster="c1",namespace="fleet",role="Worker"} ` + cmp.Or(tc.apart, "0")
			}
			require.Equal(t, apart, w.collected("never_meeting_machines"))
		})
	}
}

// slow is a clock by which each look at it takes a second.
type slow struct{ *clocktesting.FakePassiveClock }

// Now implements clock.PassiveClock.
func (c slow) Now() time.Time {
	c.SetTime(c.FakePassiveClock.Now().Add(time.Second))
	return c.FakePassiveClock.Now()
}

// TestLooksTakeASmallPartOfTheTime however often metrics are asked for, and none of them is shown for long.
func TestLooksTakeASmallPartOfTheTime(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), saturdays("a"))
	clock := slow{clocktesting.NewFakePassiveClock(w.Clock.Now())}
	c := &Collector{Client: w, Policies: w.policies, Clock: clock}
	gathered(t, c)
	first := c.last
	gathered(t, c)
	require.Same(t, first, c.last)
	clock.SetTime(first.now.Add(lookFor))
	gathered(t, c)
	require.NotSame(t, first, c.last)
}

// TestSeriesStayWhenOneCollectionFails: an alert that ends because refit could not read says that all is well.
func TestSeriesStayWhenOneCollectionFails(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), saturdays("a"))
	c := &Collector{Client: w, Policies: w.policies, Clock: w.Clock}
	before := gathered(t, c, "next_change_eta_seconds", "strategy_enabled", "joint_next_change_eta_seconds")
	require.NotEmpty(t, before)
	c.Client = failing{}
	require.Equal(t, before, gathered(t, c, "next_change_eta_seconds", "strategy_enabled", "joint_next_change_eta_seconds"))
	require.Equal(t, 1, c.errors)
}

func TestCollectedPending(t *testing.T) {
	applying, unreachable := started(inside), func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonUnreachable
	}
	for name, tc := range map[string]struct {
		states map[string]states
		want   string
	}{
		"no updates":                 {nil, "0"},
		"all have ended":             {map[string]states{"w1": {started(inside), ended}, "w2": {failed}}, "0"},
		"one is under way":           {map[string]states{"w1": {started(inside), ended}, "w2": {applying}}, "1"},
		"one has not begun":          {map[string]states{"w1": nil}, "1"},
		"one has other specs since":  {map[string]states{"w1": {ended, func(mu *refitv1.MachineUpdate) { mu.Spec.Digest = "new" }}}, "1"},
		"one waits for its node":     {map[string]states{"w1": {unreachable}}, "1"},
		"one waits for a policy":     {map[string]states{"w1": {waiting}, "w2": {applying}}, "2"},
		"the other one waits for it": {map[string]states{"w1": {applying}, "w2": {waiting}}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{cluster("c1", nil, nil), worker("w1"), worker("w2"), anytime("a")}
			for name, s := range tc.states {
				objects = append(objects, update(name, s...))
			}
			require.Equal(t, `change_pending{cluster="c1",namespace="fleet",policy="a",role="Worker"} `+tc.want, newWorld(t, objects...).collected("change_pending"))
		})
	}
}

// uncommittedOf is what waits at the MachineDeployment md of c1 without a MachineUpdate.
func uncommittedOf(policies ...refitv1.PendingPolicy) *refitv1.PendingChange {
	p := &refitv1.PendingChange{ObjectMeta: objectMeta{Namespace: "fleet", Name: "machinedeployment-md"}}
	p.Spec = refitv1.PendingChangeSpec{Cluster: "c1", Owner: refitv1.PendingOwner{Kind: "MachineDeployment", Name: "md"}, Role: refitv1.WorkerRole}
	p.Status.Policies = policies
	return p
}

// TestCollectedPendingWithoutUpdates: replacements, refused changes and upgrades wait, too.
func TestCollectedPendingWithoutUpdates(t *testing.T) {
	ofCluster := uncommittedOf(refitv1.PendingPolicy{Name: "a", Machines: 1, Held: 1})
	ofCluster.Name, ofCluster.Spec.Role = "cluster-c1", ""
	for name, tc := range map[string]struct {
		pending *refitv1.PendingChange
		want    string
	}{
		"held back":                        {uncommittedOf(refitv1.PendingPolicy{Name: "a", Machines: 2, Held: 1}), "2"},
		"about to be made":                 {uncommittedOf(refitv1.PendingPolicy{Name: "a", Machines: 2}), "1"},
		"under another policy":             {uncommittedOf(refitv1.PendingPolicy{Name: "b", Machines: 2, Held: 2}), "0"},
		"a Cluster's is that of its parts": {ofCluster, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), anytime("a"), tc.pending)
			require.Equal(t, `change_pending{cluster="c1",namespace="fleet",policy="a",role="Worker"} `+tc.want, w.collected("change_pending"))
		})
	}
}

// TestCollectedUncommittedUnderThePlatform: a policy of the platform may have the name of one of a namespace.
func TestCollectedUncommittedUnderThePlatform(t *testing.T) {
	for title, want := range map[string][2]string{"a": {"0", "2"}, "ClusterChangeManagementPolicy a": {"2", "0"}} {
		w := newWorld(t, cluster("c1", nil, nil), worker("w1"), anytime("a"), platform(anytime("a")), uncommittedOf(refitv1.PendingPolicy{Name: title, Machines: 1, Held: 1}))
		require.Equal(t, `change_pending{cluster="c1",namespace="fleet",policy="ClusterChangeManagementPolicy a",role="Worker"} `+want[0]+
			"\n"+`change_pending{cluster="c1",namespace="fleet",policy="a",role="Worker"} `+want[1], w.collected("change_pending"))
	}
}

// TestCollectedUncommittedOfAClass: a policy that opens each Saturday opens much later for what waits for it.
func TestCollectedUncommittedOfAClass(t *testing.T) {
	policy := saturdays("a", func(s *spec) {
		permit := s.MaintenanceSchedule.Permit[0]
		permit.Recurrence, permit.Changes = "FREQ=WEEKLY;BYDAY=SU", &schedule.PermittedChanges{Kinds: []schedule.Kind{schedule.MinorVersionKind}}
		s.MaintenanceSchedule.Permit[0].Changes = &schedule.PermittedChanges{MaxDisruption: "Restart"}
		s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, permit)
	})
	const eta = `next_change_eta_seconds{cluster="c1",namespace="fleet",policy="a",role="Worker"} `
	objects := []client.Object{cluster("c1", nil, nil), worker("w1"), policy}
	require.Equal(t, eta+"0", newWorld(t, objects...).collected("next_change_eta_seconds"), "for some changes")
	held := refitv1.PendingPolicy{Name: "a", Machines: 1, Held: 1, Classes: []refitv1.PendingClass{{Kinds: []schedule.Kind{schedule.MinorVersionKind}, Disruption: "Drain"}}}
	require.Equal(t, eta+"82800", newWorld(t, append(objects, uncommittedOf(held))...).collected("next_change_eta_seconds"))
}

// TestCollectedSeries has clusters of the same name, and policies of the same name, in two namespaces.
func TestCollectedSeries(t *testing.T) {
	move := func(obj client.Object) client.Object {
		obj.SetNamespace("other")
		return obj
	}
	orphan := worker("w9", inCluster("gone"))
	orphan.CreationTimestamp = metav1.NewTime(created)
	w := newWorld(t,
		cluster("c1", nil, nil), cluster("c2", nil, nil), move(cluster("c1", nil, nil)),
		worker("w1"), worker("w2"), controlPlane("cp1"), worker("w3", inCluster("c2")), move(worker("w1")), orphan,
		saturdays("a"), never("b", roles(refitv1.ControlPlaneRole)), of("other", anytime("a")), of("empty", onMars("a")),
		update("w2", waiting), move(update("w1", started(inside))))
	require.Equal(t, strings.TrimSpace(`
change_pending{cluster="",namespace="empty",policy="a",role=""} 0
change_pending{cluster="c1",namespace="fleet",policy="a",role="ControlPlane"} 0
change_pending{cluster="c1",namespace="fleet",policy="a",role="Worker"} 2
change_pending{cluster="c1",namespace="fleet",policy="b",role="ControlPlane"} 0
change_pending{cluster="c1",namespace="other",policy="a",role="Worker"} 1
change_pending{cluster="c2",namespace="fleet",policy="a",role="Worker"} 0
change_pending{cluster="gone",namespace="fleet",policy="a",role="Worker"} 0
`), w.collected("change_pending"))
	require.Equal(t, strings.TrimSpace(`
strategy_enabled{namespace="empty",policy="a",strategy="MaintenanceSchedule"} 1
strategy_enabled{namespace="empty",policy="a",strategy="Manual"} 0
strategy_enabled{namespace="empty",policy="a",strategy="Permissive"} 0
strategy_enabled{namespace="empty",policy="a",strategy="Restrictive"} 0
strategy_enabled{namespace="fleet",policy="a",strategy="MaintenanceSchedule"} 1
strategy_enabled{namespace="fleet",policy="a",strategy="Manual"} 0
strategy_enabled{namespace="fleet",policy="a",strategy="Permissive"} 0
strategy_enabled{namespace="fleet",policy="a",strategy="Restrictive"} 0
strategy_enabled{namespace="fleet",policy="b",strategy="MaintenanceSchedule"} 0
strategy_enabled{namespace="fleet",policy="b",strategy="Manual"} 0
strategy_enabled{namespace="fleet",policy="b",strategy="Permissive"} 0
strategy_enabled{namespace="fleet",policy="b",strategy="Restrictive"} 1
strategy_enabled{namespace="other",policy="a",strategy="MaintenanceSchedule"} 0
strategy_enabled{namespace="other",policy="a",strategy="Manual"} 0
strategy_enabled{namespace="other",policy="a",strategy="Permissive"} 1
strategy_enabled{namespace="other",policy="a",strategy="Restrictive"} 0
`), w.collected("strategy_enabled"))
	require.Contains(t, w.collected(), `next_change_eta_seconds{cluster="",namespace="empty",policy="a",role=""} -2`, "a policy that selects nobody yet is told of, too")
}

func TestCollectedOverrides(t *testing.T) {
	hour, tooFar := text(inside.Add(time.Hour)), text(inside.Add(49*time.Hour))
	for name, tc := range map[string]struct {
		cluster  map[string]string
		machine  func(*clusterv1.Machine)
		policies []client.Object
		want     string
	}{
		"none":                                    {want: ""},
		"permissive":                              {cluster: map[string]string{permissiveKey: hour}, want: "permissive-until"},
		"permissive for too long by default":      {cluster: map[string]string{permissiveKey: tooFar}, want: ""},
		"permissive for too long by a policy":     {cluster: map[string]string{permissiveKey: hour}, policies: []client.Object{never("a", maxOverride("1m"))}, want: ""},
		"permissive for as long as a policy says": {cluster: map[string]string{permissiveKey: tooFar}, policies: []client.Object{never("a", maxOverride("100h"))}, want: "permissive-until"},
		"restrictive":                             {cluster: map[string]string{restrictiveKey: "soon"}, want: "restrictive-until"},
		"over":                                    {cluster: map[string]string{permissiveKey: text(inside), restrictiveKey: text(inside)}, want: ""},
		"of one Machine":                          {machine: annotated(restrictiveKey, "true"), want: "restrictive-until"},
		"of both":                                 {cluster: map[string]string{restrictiveKey: "true"}, machine: annotated(restrictiveKey, hour), want: "restrictive-until"},
		"a bypass of its change":                  {machine: annotated(bypassKey, "digest-w1"), want: "bypass-change-management"},
		"a bypass of another change":              {machine: annotated(bypassKey, "digest-w2"), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := worker("w1")
			if tc.machine != nil {
				tc.machine(m)
			}
			w := newWorld(t, append(tc.policies, cluster("c1", nil, tc.cluster), m, worker("w2"), update("w1"))...)
			want := ""
			if tc.want != "" {
				want = `override_active{cluster="c1",kind="` + tc.want + `",namespace="fleet"} 1`
			}
			require.Equal(t, want, w.collected("override_active"))
		})
	}
}
