package changemanagement

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// platform makes a policy of the platform out of one of a namespace.
func platform(p *refitv1.ChangeManagementPolicy, edits ...func(*refitv1.ClusterChangeManagementPolicy)) *refitv1.ClusterChangeManagementPolicy {
	out := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: p.ObjectMeta}
	out.Namespace, out.UID = "", types.UID("platform-"+p.Name)
	out.Spec.ChangeManagementPolicySpec = p.Spec
	for _, e := range edits {
		e(out)
	}
	return out
}

func allows(p *refitv1.ClusterChangeManagementPolicy) { p.Spec.Overrides = refitv1.AllowOverrides }

func inProd(p *refitv1.ClusterChangeManagementPolicy) {
	p.Spec.NamespaceSelector.MatchLabels = map[string]string{"tier": "prod"}
}

func annotatedPolicy(key, value string) func(*refitv1.ClusterChangeManagementPolicy) {
	return func(p *refitv1.ClusterChangeManagementPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		p.Annotations = noted(p.Annotations)
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: objectMeta{Name: name, Labels: labels}}
}

const platformKey = "ClusterChangeManagementPolicy platform"

// TestThePlatformsPoliciesBoundThoseOfNamespaces demands that both have to be open.
func TestThePlatformsPoliciesBoundThoseOfNamespaces(t *testing.T) {
	prod := map[string]string{"tier": "prod"}
	for name, tc := range map[string]struct {
		platform  *refitv1.ClusterChangeManagementPolicy
		namespace *corev1.Namespace
		policy    *refitv1.ChangeManagementPolicy // of the namespace
		open      bool
		policies  []string
		says      string
	}{
		"a policy of the namespace opens nothing": {
			platform(never("platform")), namespace("fleet", nil), anytime("a"), false,
			[]string{platformKey, "a"}, "policy " + platformKey + " is restrictive"},
		"of the same name it is another one":   {platform(never("platform")), namespace("fleet", nil), anytime("platform"), false, []string{platformKey, "platform"}, "policy " + platformKey + " is restrictive"},
		"it permits nothing by itself":         {platform(anytime("platform")), namespace("fleet", nil), never("a"), false, []string{platformKey, "a"}, "policy a is restrictive"},
		"both are open":                        {platform(saturdays("platform")), namespace("fleet", nil), anytime("a"), true, []string{platformKey, "a"}, "open until"},
		"it needs no policy of the namespace":  {platform(never("platform")), namespace("fleet", nil), nil, false, []string{platformKey}, platformKey},
		"it is for the namespaces that it has": {platform(never("platform"), inProd), namespace("fleet", prod), nil, false, []string{platformKey}, platformKey},
		"it is for no other namespace":         {platform(never("platform"), inProd), namespace("fleet", nil), anytime("a"), true, []string{"a"}, "open"},
		"a namespace that can't be read is any": {
			platform(never("platform"), inProd), namespace("other", nil), nil, false,
			[]string{platformKey}, platformKey},
		"a selector that can't be read is for all": {platform(anytime("platform"), func(p *refitv1.ClusterChangeManagementPolicy) {
			p.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}
		}), namespace("fleet", nil), nil, false, []string{platformKey}, "namespaceSelector"},
		"it selects by roles":    {platform(never("platform", roles(refitv1.ControlPlaneRole))), namespace("fleet", nil), anytime("a"), true, []string{"a"}, "open"},
		"it selects by clusters": {platform(never("platform", clustersOf(map[string]string{"a": "b"}))), namespace("fleet", nil), anytime("a"), true, []string{"a"}, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{cluster("c1", nil, nil), worker("w1"), update("w1"), tc.platform, tc.namespace}
			if tc.policy != nil {
				objects = append(objects, tc.policy)
			}
			w := newWorld(t, objects...)
			d := w.ask("w1")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Equal(t, tc.policies, names(d.Policies))
			require.Contains(t, d.Message, tc.says)
			asked, err := w.permit(propose(replacing))
			require.True(t, asked)
			if tc.open {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
			}
		})
	}
}

// TestTenantsDontWeakenThePlatform demands that what is annotated in the namespace opens a policy of the platform only if that says so.
func TestTenantsDontWeakenThePlatform(t *testing.T) {
	soon := text(inside.Add(time.Hour))
	permissive := annotated(permissiveKey, soon)
	bypass := annotated(refitv1.BypassAnnotation, "digest-w1, digest-w1-x")
	own := annotatedPolicy
	for name, tc := range map[string]struct {
		platform *refitv1.ClusterChangeManagementPolicy
		edits    []func(*clusterv1.Machine)
		open     bool
		reason   schedule.Reason
		says     []string
	}{
		"permissive-until": {platform: platform(never("platform")), edits: []func(*clusterv1.Machine){permissive}, reason: schedule.Paused,
			says: []string{platformKey + " is restrictive", "permissive-until=" + soon + " on Machine w1 does not open policy " + platformKey}},
		"a bypass":                    {platform: platform(never("platform")), edits: []func(*clusterv1.Machine){bypass}, reason: schedule.Paused, says: []string{"does not open policy " + platformKey}},
		"where it is allowed":         {platform: platform(never("platform"), allows), edits: []func(*clusterv1.Machine){permissive}, open: true, reason: schedule.Overridden},
		"a bypass where it is":        {platform: platform(never("platform"), allows), edits: []func(*clusterv1.Machine){bypass}, open: true, reason: schedule.Overridden},
		"in its window they open all": {platform: platform(saturdays("platform")), edits: []func(*clusterv1.Machine){permissive}, open: true, reason: schedule.Overridden},
		"a stop of a namespace holds": {platform: platform(anytime("platform")), edits: []func(*clusterv1.Machine){annotated(refitv1.RestrictiveUntilAnnotation, "true")}, reason: schedule.Overridden},
		"one that can't be read": {platform: platform(onMars("platform"), own(permissiveKey, soon)), edits: []func(*clusterv1.Machine){bypass}, reason: schedule.InvalidPolicy,
			says: []string{"policy " + platformKey + " is invalid"}},
		"permissive-until of its own": {platform: platform(never("platform"), own(permissiveKey, soon)), reason: schedule.Paused, says: []string{"policy a is restrictive"}},
		"of its own, and of the namespace": {
			platform: platform(never("platform"), own(permissiveKey, soon)), edits: []func(*clusterv1.Machine){permissive}, open: true, reason: schedule.Overridden,
			says: []string{"permissive-until=" + soon + " on ClusterChangeManagementPolicy platform"}},
		"a bypass of its own, and one of the namespace": {
			platform: platform(never("platform"), own(refitv1.BypassAnnotation, "digest-w1")), edits: []func(*clusterv1.Machine){bypass}, open: true, reason: schedule.Overridden},
		"a bypass of its own of another change": {
			platform: platform(never("platform"), own(refitv1.BypassAnnotation, "digest-w2")), edits: []func(*clusterv1.Machine){bypass}, reason: schedule.Paused},
		"a stop of its own": {platform: platform(anytime("platform"), own(refitv1.RestrictiveUntilAnnotation, "true")), edits: []func(*clusterv1.Machine){bypass}, reason: schedule.Overridden,
			says: []string{"restrictive-until=true on ClusterChangeManagementPolicy platform", "does not open"}},
		"more than maxOverride ahead of its own": {platform: platform(never("platform", maxOverride("30m")), own(permissiveKey, soon)), edits: []func(*clusterv1.Machine){permissive}, reason: schedule.Paused,
			says: []string{"allow at most 30m0s ahead"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1", tc.edits...), update("w1"), tc.platform, namespace("fleet", nil), never("a"))
			d := w.ask("w1")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Equal(t, tc.reason, d.Reason, d.Message)
			for _, text := range tc.says {
				require.Contains(t, d.Message, text)
			}
			if tc.open {
				require.True(t, d.Special(), "it is told, and audited")
			}
		})
	}
}

// TestThePlatformsOwnOverride demands that an annotation of a policy opens that one, without budgets and jitter, and no other.
func TestThePlatformsOwnOverride(t *testing.T) {
	one := budget(refitv1.Budget{MaxConcurrent: 1})
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), update("w1"), update("w2", started(inside)), namespace("fleet", nil),
		platform(never("platform", one, jitter("8h")), annotatedPolicy(permissiveKey, text(inside.Add(time.Hour)))))
	d := w.admit("w1")
	require.True(t, d.Open, d.Message)
	require.Equal(t, schedule.Open, d.Reason)
	require.Equal(t, "permissive-until=2026-10-03T22:00:00Z on ClusterChangeManagementPolicy platform", d.Message)
	require.True(t, d.Special(), "it is told, and audited")
	require.Contains(t, w.collected("override_active"), `override_active{cluster="c1",kind="permissive-until",namespace="fleet"} 1`)

	require.NoError(t, w.Create(t.Context(), never("a")))
	w.Reread("a")
	require.False(t, w.ask("w1").Open)

	// It is not in force before it is noted since when it is there.
	p := platformOf(w)
	delete(p.Annotations, refitv1.PermissiveSinceAnnotation)
	require.NoError(t, w.Update(t.Context(), p))
	_, err := w.policies.Cluster.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "platform"}})
	require.NoError(t, err)
	require.Contains(t, w.ask("w1").Message, "refit's leader has not noted yet")
	since := &Since{Client: w, Live: w.Client, Clock: w.Clock}
	_, err = since.note(t.Context(), refitv1.GroupVersion.WithKind(clusterKind), types.NamespacedName{Name: "platform"})
	require.NoError(t, err)
	require.NotZero(t, sinceOf(platformOf(w).Annotations))
}

// TestThePlatformsBypassTellsWhichStopItPasses demands that a stop of the policy's own that is passed is told, and counted.
func TestThePlatformsBypassTellsWhichStopItPasses(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1"), namespace("fleet", nil),
		platform(anytime("platform"), annotatedPolicy(refitv1.RestrictiveUntilAnnotation, "true"), annotatedPolicy(refitv1.BypassAnnotation, "digest-w1")))
	d := w.admit("w1")
	require.True(t, d.Open, d.Message)
	require.Equal(t, "bypass-change-management=digest-w1 on "+platformKey+", which passes restrictive-until=true on "+platformKey, d.Message)
	require.Len(t, d.Passed, 1)
	require.InDelta(t, 1, testutil.ToFloat64(w.gate.Metrics.passed), 0)
}

// platformOf returns a policy of the platform.
func platformOf(w *world) *refitv1.ClusterChangeManagementPolicy {
	w.T.Helper()
	p := &refitv1.ClusterChangeManagementPolicy{}
	require.NoError(w.T, w.Client.Get(w.T.Context(), types.NamespacedName{Name: "platform"}, p))
	return p
}

// TestOverridesPassNoBudgetOfThePlatform demands that what a tenant lets go counts against the platform's budget, and waits for its jitter.
func TestOverridesPassNoBudgetOfThePlatform(t *testing.T) {
	bypass := func(name string) func(*clusterv1.Machine) { return annotated(refitv1.BypassAnnotation, "digest-"+name) }
	one := budget(refitv1.Budget{MaxConcurrent: 1})
	w := newWorld(t, cluster("c1", nil, nil), worker("w1", bypass("w1")), worker("w2", bypass("w2")), update("w1"), update("w2"), namespace("fleet", nil),
		platform(anytime("platform", one)), never("a", one))
	require.True(t, w.admit("w1").Open)
	d := w.ask("w2")
	require.Equal(t, schedule.BudgetExhausted, d.Reason, d.Message)
	require.Contains(t, d.Message, "policy "+platformKey+": as many updates are under way")
	w.edit("w1", ended)
	w.Clock.Step(time.Minute)
	require.True(t, w.admit("w2").Open)

	w = newWorld(t, cluster("c1", nil, nil), worker("w1", bypass("w1")), update("w1"), namespace("fleet", nil), platform(saturdays("platform", jitter("7h"))), never("a"))
	w.Clock.SetTime(opened)
	d = w.ask("w1")
	require.False(t, d.Open)
	require.Contains(t, d.Message, "jitter")
}

// TestEachNamespaceHasABudgetOfItsOwn: shards have namespaces, so that nobody could count for all of them.
func TestEachNamespaceHasABudgetOfItsOwn(t *testing.T) {
	other := cluster("c1", nil, nil)
	other.Namespace = "other"
	elsewhere, mu := worker("w9"), update("w9", started(inside))
	elsewhere.Namespace, mu.Namespace = "other", "other"
	w := newWorld(t, cluster("c1", nil, nil), other, worker("w1"), worker("w2"), update("w1"), update("w2"), elsewhere, mu,
		namespace("fleet", nil), namespace("other", nil), platform(anytime("platform", budget(refitv1.Budget{MaxConcurrent: 1}))))
	require.True(t, w.admit("w1").Open)
	require.Equal(t, schedule.BudgetExhausted, w.ask("w2").Reason)
}

// TestWhatWasMeasuredInANamespaceIsNoShortcut: a tenant who may write the status of a policy could have been measured a second.
func TestWhatWasMeasuredInANamespaceIsNoShortcut(t *testing.T) {
	seconds := int64(1)
	a := anytime("a")
	a.Status.Durations = []refitv1.MeasuredDuration{{Role: refitv1.WorkerRole, Disruption: "Restart", Seconds: &seconds}}
	planned := func(mu *refitv1.MachineUpdate) {
		mu.Status.Plan = &refitv1.PlannedWork{Material: true, WorstAction: "Restart"}
	}
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", planned), a, namespace("fleet", nil), platform(saturdays("platform", expects("2h"))))
	w.Clock.SetTime(closes.Add(-time.Hour))
	require.Equal(t, schedule.OutsideWindow, w.ask("w1").Reason)
	w.Clock.SetTime(closes.Add(-3 * time.Hour))
	require.True(t, w.ask("w1").Open)
}

func TestAPolicyOfThePlatformThatCantBe(t *testing.T) {
	for name, tc := range map[string]struct {
		policy *refitv1.ClusterChangeManagementPolicy
		says   string
	}{
		"Manual without overrides":   {platform(policy("p", schedule.ManualStrategy)), "overrides: strategy Manual needs Allow"},
		"Manual with them":           {platform(policy("p", schedule.ManualStrategy), allows), ""},
		"a budget for each window":   {platform(anytime("p", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), "budget: only maxConcurrent"},
		"a budget of failures":       {platform(anytime("p", budget(refitv1.Budget{StopAfterFailures: 1}))), "budget: only maxConcurrent"},
		"spacing":                    {platform(anytime("p", budget(refitv1.Budget{MinSpacing: "1m"}))), "budget: only maxConcurrent"},
		"how many at once":           {platform(anytime("p", budget(refitv1.Budget{MaxConcurrent: 1}))), ""},
		"overrides that are unknown": {platform(anytime("p"), func(p *refitv1.ClusterChangeManagementPolicy) { p.Spec.Overrides = "Perhaps" }), `overrides: "Perhaps" is not known`},
		"a zone that is none":        {platform(onMars("p")), "maintenanceSchedule.timeZone"},
		"health gates": {platform(anytime("p"), func(p *refitv1.ClusterChangeManagementPolicy) {
			p.Spec.Gates = []refitv1.HealthGate{{Name: "errors", Prometheus: &refitv1.PrometheusGate{URL: "https://prometheus.example.org", Query: "x"}}}
		}), "gates: what they ask"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := CompileCluster(tc.policy, schedule.NoCalendars)
			if tc.says == "" {
				require.NoError(t, err)
				require.NoError(t, p.Schedule.Err(inside))
				return
			}
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, p.Schedule.Err(inside), tc.says, "it is closed")
		})
	}
}

// TestCalendarsOfThePlatform are in refit's own namespace, and not in that of a Machine.
func TestCalendarsOfThePlatform(t *testing.T) {
	freezes := platform(saturdays("platform", func(s *spec) {
		s.MaintenanceSchedule.Exclude = []schedule.Exclude{{Calendar: &schedule.CalendarReference{ConfigMap: schedule.ConfigMapKey{Name: "freezes", Key: "c.ics"}}}}
	}))
	calendar := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: objectMeta{Namespace: namespace, Name: "freezes"}, Data: map[string]string{
			"c.ics": "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//a//EN\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20200101T000000Z\r\nDTSTART;VALUE=DATE:20200101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		}}
	}
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1"), namespace("fleet", nil), freezes, calendar("fleet"))
	require.Contains(t, w.ask("w1").Message, "POD_NAMESPACE")
	w.policies.Namespace = "refit-system"
	require.NoError(t, w.policies.Prime(t.Context()))
	require.Contains(t, w.ask("w1").Message, "is invalid")
	require.NoError(t, w.Create(t.Context(), calendar("refit-system")))
	result, err := w.policies.Cluster.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "platform"}})
	require.NoError(t, err)
	require.Equal(t, calendarRefresh, result.RequeueAfter)
	require.True(t, w.ask("w1").Open)
}

// TestDeadlinesOfThePlatform demands that what is written in a namespace opens no policy of the platform: only how long a change has waited does.
func TestDeadlinesOfThePlatform(t *testing.T) {
	const outside = 48 * time.Hour
	now := inside.Add(outside)
	opens := deadline(refitv1.Deadline{After: "30d", WarnBefore: "1d", AtDeadline: refitv1.OpenAtDeadline})
	for name, tc := range map[string]struct {
		wait   Wait
		allows bool
		open   bool
	}{
		"a version that is said to be no longer supported": {wait: Wait{Since: now.Add(-day), EndOfLife: now.Add(-day)}},
		"certificates that are said to end":                {wait: Wait{Since: now.Add(-day), Certificates: now}},
		"a control plane that is said to wait":             {wait: Wait{Since: now.Add(-2 * day), Behind: true}},
		"a change that has waited for too long":            {wait: Wait{Since: now.Add(-31 * day)}, open: true},
		"one after a version that is said to be old":       {wait: Wait{Since: now.Add(-31 * day), EndOfLife: now.Add(-40 * day)}, open: true},
		"what overrides may open, the namespace may":       {wait: Wait{Since: now.Add(-day), EndOfLife: now.Add(-day)}, allows: true, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := platform(saturdays("platform", opens))
			if tc.allows {
				allows(p)
			}
			one, err := CompileCluster(p, schedule.NoCalendars)
			require.NoError(t, err)
			d := Decide(now, &Candidate{}, []*Policy{one}, Change{Wait: tc.wait})
			require.Equal(t, tc.open, d.Open, d.Message)
			require.True(t, d.Near, "it is told all the same")
			require.Contains(t, d.Due.String(), "policy "+platformKey)
		})
	}
	one, err := CompileCluster(platform(saturdays("platform", opens)), schedule.NoCalendars)
	require.NoError(t, err)
	waits := Wait{Since: now.Add(-29 * day), EndOfLife: now.Add(-10 * day)}
	d := Decide(now, &Candidate{}, []*Policy{one}, Change{Wait: waits})
	require.False(t, d.Open)
	require.Contains(t, d.Due.String(), "it goes on to wait then, and from its deadline at "+text(now.Add(day))+" (Waiting) on it does not wait for windows of the policy")
}
