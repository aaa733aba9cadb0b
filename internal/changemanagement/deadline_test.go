package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/schedule"
)

func deadline(d refitv1.Deadline) edit { return func(s *spec) { s.Deadline = &d } }

// opensAfter has a policy let changes start that have waited for so long.
func opensAfter(after string) edit {
	return deadline(refitv1.Deadline{After: after, AtDeadline: refitv1.OpenAtDeadline})
}

// since has an update wait since an instant.
func since(at time.Time) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		held(mu)
		mu.Status.WantedSince = &metav1.Time{Time: at}
	}
}

// runs has a Machine be at a version, and be brought to another.
func runs(is, wants string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: is}
		m.Spec.Version = wants
	}
}

func certificatesEnd(at time.Time) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Status.CertificatesExpiryDate = metav1.NewTime(at) }
}

// lives says when the version of a Machine with the label pool=old ends.
type lives struct {
	end time.Time
	err error
}

func (l lives) EndOfLife(context.Context, *clusterv1.Machine) (time.Time, error) { return l.end, l.err }

// withDeadlines has the world know of deadlines.
func (w *world) withDeadlines(l Lives) *world {
	w.gate.Waits = &Waits{Client: w.Client, Lives: l, Clock: w.Clock}
	return w
}

const day = 24 * time.Hour

func TestDeadlinesThatCannotBeRead(t *testing.T) {
	for field, d := range map[string]refitv1.Deadline{
		"deadline.after: ":      {After: "thirty days"},
		"deadline.warnBefore: ": {WarnBefore: "0d"},
		"deadline.atDeadline: ": {AtDeadline: "Explode"},
		"deadline.causes: ":     {Causes: []refitv1.DeadlineCause{"Boredom"}},
		"deadline.after: it":    {Causes: []refitv1.DeadlineCause{refitv1.WaitingDeadline}},
		"deadline.after: it ":   {After: "3d", Causes: []refitv1.DeadlineCause{refitv1.SkewDeadline}},
	} {
		_, err := Compile(saturdays("a", deadline(d)), schedule.NoCalendars)
		require.ErrorContains(t, err, field)
	}
	for text, want := range map[string]time.Duration{"30d": 30 * day, "36h": 36 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute} {
		p := read(saturdays("a", deadline(refitv1.Deadline{After: text, WarnBefore: text})))[0]
		require.NoError(t, p.Err)
		require.Equal(t, Deadline{After: want, WarnBefore: want, Causes: p.Deadline.Causes}, *p.Deadline)
	}
	for _, text := range []string{"", "d", "-1d", "1d1", "1.5d", "99999999d", "1d-24h"} {
		_, err := parseDays(text)
		require.Error(t, err, text)
	}
}

func TestADeadlineIsToldAndThenOpens(t *testing.T) {
	const after = 30 * day
	began := outside.Add(-after) // so that it ends outside of windows
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		now      time.Duration // from the deadline on
		open     bool
		reason   schedule.Reason
		near     bool
		says     string
	}{
		"long before":                 {some(saturdays("a", opensAfter("30d"))), -8 * day, false, schedule.OutsideWindow, false, ""},
		"a second before the warning": {some(saturdays("a", opensAfter("30d"))), -7*day - time.Second, false, schedule.OutsideWindow, false, ""},
		"warned of":                   {some(saturdays("a", opensAfter("30d"))), -7 * day, false, schedule.OutsideWindow, true, ""},
		"a second before":             {some(saturdays("a", opensAfter("30d"))), -time.Second, false, schedule.OutsideWindow, true, ""},
		"passed":                      {some(saturdays("a", opensAfter("30d"))), 0, true, schedule.DeadlinePassed, true, "the deadline of this change has passed under policy a (Waiting, at " + text(outside) + ")"},
		"passed, and it holds":        {some(saturdays("a", deadline(refitv1.Deadline{After: "30d"}))), day, false, schedule.OutsideWindow, true, ""},
		"passed where it never opens": {some(saturdays("a", expects("9h"), opensAfter("30d"))), 0, true, schedule.DeadlinePassed, true, ""},
		"another policy has none":     {some(saturdays("a", opensAfter("30d")), weekly("b", "FR")), 0, false, schedule.OutsideWindow, true, "the deadline of this change has passed under policy a (Waiting, at " + text(outside) + "); policy b: OutsideWindow; opens at 2026-10-02T20:00:00Z"},
		"another is later":            {some(saturdays("a", opensAfter("30d")), weekly("b", "FR", opensAfter("31d"))), 0, false, schedule.OutsideWindow, true, "policy b"},
		"both have passed":            {some(saturdays("a", opensAfter("30d")), weekly("b", "FR", opensAfter("20d"))), 0, true, schedule.DeadlinePassed, true, "under policy a (Waiting, at " + text(outside) + "), b (Waiting"},
		"another one is restrictive":  {some(saturdays("a", opensAfter("30d")), never("b")), 0, false, schedule.Paused, true, "policy b is restrictive"},
		"restrictive":                 {some(never("a", opensAfter("30d"))), 0, false, schedule.Paused, true, "policy a is restrictive"},
		"manual":                      {some(policy("a", schedule.ManualStrategy, opensAfter("30d"))), 0, false, schedule.Manual, true, "nobody has permitted this change"},
		"invalid":                     {some(onMars("a", opensAfter("30d"))), 0, false, schedule.InvalidPolicy, true, "policy a is invalid"},
		"closed on purpose": {some(saturdays("a", opensAfter("30d"), func(s *spec) {
			s.MaintenanceSchedule.Permit, s.MaintenanceSchedule.Exclude = []schedule.Permit{}, []schedule.Exclude{{From: "2027-01-01"}}
		})), 0, false, schedule.NoWindowWithinHorizon, true, "policy a: no window within 1000 days"},
		"closed on purpose, and a freeze of some changes": {some(saturdays("a", opensAfter("30d"), func(s *spec) {
			s.MaintenanceSchedule.Permit = []schedule.Permit{}
			s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2027-01-01", Changes: &schedule.ExcludedChanges{MinDisruption: "Reboot"}}}
		})), 0, false, schedule.NoWindowWithinHorizon, true, "policy a: no window within 1000 days"},
		"a freeze": {some(saturdays("a", opensAfter("30d"), func(s *spec) {
			s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-09-20", Until: "2026-10-02", Reason: "freeze"}}
		})), 0, false, schedule.Excluded, true, "policy a (freeze): Excluded; opens at 2026-10-02T00:00:00Z"},
		"a freeze of other changes": {some(saturdays("a", opensAfter("30d"), upTo("Reload"), func(s *spec) {
			s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-09-20", Until: "2026-10-02", Changes: &schedule.ExcludedChanges{MinDisruption: "Reboot"}}}
		})), 0, true, schedule.DeadlinePassed, true, ""},
		"in a window": {some(weekly("a", "TH", opensAfter("30d"), func(s *spec) { s.MaintenanceSchedule.Permit[0].StartTime = "11:00" })), 0, true, schedule.Open, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", since(began), takes("Restart"))).withDeadlines(nil)
			w.add(tc.policies...)
			w.Clock.SetTime(outside.Add(tc.now))
			d := w.ask("w1")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Equal(t, tc.reason, d.Reason, d.Message)
			require.Equal(t, tc.near, d.Near)
			require.Contains(t, d.Message, tc.says)
			if tc.now < 0 {
				require.Positive(t, d.LookIn)
				require.LessOrEqual(t, d.LookIn, -tc.now)
			}
		})
	}
}

func TestADeadlinePassesNoStop(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, map[string]string{restrictiveKey: "true"}), worker("w1"), update("w1", since(outside.Add(-31*day)), takes("Restart"))).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("30d")))
	w.Clock.SetTime(outside)
	d := w.ask("w1")
	require.False(t, d.Open)
	require.Equal(t, schedule.Overridden, d.Reason)
	require.True(t, d.Stopped)
}

// TestAPolicyThatCantBeReadOpensForNoDeadline demands that of what is wrong with it beside its windows, too.
func TestAPolicyThatCantBeReadOpensForNoDeadline(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", since(outside.Add(-31*day)), takes("Restart")), namespace("fleet", nil),
		platform(saturdays("platform", opensAfter("30d")), func(p *refitv1.ClusterChangeManagementPolicy) {
			p.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}
		})).withDeadlines(nil)
	w.Clock.SetTime(outside)
	require.Equal(t, schedule.InvalidPolicy, w.ask("w1").Reason)

	w = newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", since(outside.Add(-31*day)), takes("Restart"))).withDeadlines(nil)
	w.policies.MayAsk = func(*health.Gate) error { return errors.New("it may not be asked") }
	w.add(saturdays("a", opensAfter("30d"), gated("errors")))
	w.healthy().set("errors", answering(outside))
	w.Clock.SetTime(outside)
	require.Equal(t, schedule.InvalidPolicy, w.ask("w1").Reason)
}

// TestWhatIsOverdueIsLookedAt demands that refit asks the node what an overdue change takes, if its deadline opens for some changes.
func TestWhatIsOverdueIsLookedAt(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", since(outside.Add(-31*day)))).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("30d"), func(s *spec) {
		s.Hold = refitv1.HoldAll
		s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-01-01", Until: "2036-01-01", Changes: &schedule.ExcludedChanges{MinDisruption: "Reboot"}}}
	}))
	w.Clock.SetTime(outside)
	d := w.ask("w1")
	require.False(t, d.Open)
	require.False(t, d.KeepsOff(), d.Message)
	w.edit("w1", takes("Restart"))
	require.Equal(t, schedule.DeadlinePassed, w.ask("w1").Reason)
	w.edit("w1", takes("Reboot"))
	d = w.ask("w1")
	require.True(t, d.KeepsOff())
}

func TestBudgetsCountForWhatADeadlineLetsStart(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"),
		update("w1", since(outside.Add(-31*day)), takes("Restart")), update("w2", since(outside.Add(-31*day)), takes("Restart"))).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("30d"), budget(refitv1.Budget{MaxConcurrent: 1})))
	w.Clock.SetTime(outside)
	d := w.admit("w1")
	require.Equal(t, schedule.DeadlinePassed, d.Reason)
	require.Equal(t, string(schedule.DeadlinePassed), get(w, "w1", &refitv1.MachineUpdate{}).Status.Admission.Reason)
	require.Equal(t, schedule.BudgetExhausted, w.ask("w2").Reason)
}

// TestWhenTheNextThatAreOverdueStart demands that the message names the day, and not the next window.
func TestWhenTheNextThatAreOverdueStart(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"),
		update("w1", since(outside.Add(-31*day)), takes("Restart")), update("w2", since(outside.Add(-31*day)), takes("Restart"))).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("30d"), budget(refitv1.Budget{MaxStartsPerWindow: 1})))
	w.Clock.SetTime(outside)
	require.Equal(t, schedule.DeadlinePassed, w.admit("w1").Reason)
	d, midnight := w.ask("w2"), instant("2026-10-02T00:00:00Z")
	require.Equal(t, schedule.BudgetExhausted, d.Reason)
	require.Contains(t, d.Message, "the next ones may at "+text(midnight))
	w.edit("w1", ended)
	w.Clock.SetTime(midnight)
	require.Equal(t, schedule.DeadlinePassed, w.ask("w2").Reason)
}

func TestCausesOfDeadlines(t *testing.T) {
	all := refitv1.Deadline{After: "30d", WarnBefore: "7d"}
	waiting, certificates, skew, end := refitv1.WaitingDeadline, refitv1.CertificatesDeadline, refitv1.SkewDeadline, refitv1.EndOfLifeDeadline
	only := func(c refitv1.DeadlineCause) refitv1.Deadline {
		return refitv1.Deadline{WarnBefore: "7d", Causes: []refitv1.DeadlineCause{c}}
	}
	began, soon := outside.Add(-day), outside.Add(10*day)
	minor := runs("v1.35.2", "v1.36.0")
	for name, tc := range map[string]struct {
		deadline refitv1.Deadline
		machine  *clusterv1.Machine
		others   []client.Object
		lives    Lives
		cause    refitv1.DeadlineCause // none: there is no deadline
		at       time.Time
	}{
		"waiting":                {all, worker("m"), nil, lives{}, waiting, began.Add(30 * day)},
		"waiting alone has none": {only(certificates), worker("m"), nil, lives{}, "", time.Time{}},

		"certificates":                               {all, controlPlane("m", minor, certificatesEnd(soon)), nil, lives{}, certificates, soon.Add(-7 * day)},
		"certificates that end late":                 {all, controlPlane("m", minor, certificatesEnd(outside.Add(300*day))), nil, lives{}, waiting, began.Add(30 * day)},
		"certificates of a change that renews none":  {all, controlPlane("m", runs("v1.36.0", "v1.36.0"), certificatesEnd(soon)), nil, lives{}, waiting, began.Add(30 * day)},
		"certificates that do not count":             {only(end), controlPlane("m", minor, certificatesEnd(soon)), nil, lives{}, "", time.Time{}},
		"certificates, and a patch renews them, too": {all, controlPlane("m", runs("v1.36.0", "v1.36.1"), certificatesEnd(soon)), nil, lives{}, certificates, soon.Add(-7 * day)},

		"the end of the version":             {all, worker("m", minor), nil, lives{end: soon}, end, soon},
		"it was before":                      {all, worker("m", minor), nil, lives{end: began.Add(-day)}, end, began.Add(-day)},
		"a patch does not help":              {all, worker("m", runs("v1.36.0", "v1.36.1")), nil, lives{end: soon}, waiting, began.Add(30 * day)},
		"nobody can be asked":                {all, worker("m", minor), nil, nil, waiting, began.Add(30 * day)},
		"nobody says when":                   {all, worker("m", minor), nil, lives{}, waiting, began.Add(30 * day)},
		"two sources say when":               {all, worker("m", minor), nil, lives{end: soon, err: errors.New("ambiguous")}, waiting, began.Add(30 * day)},
		"it is not known what the node runs": {all, worker("m"), nil, lives{end: soon}, waiting, began.Add(30 * day)},
		"a version that nobody reads":        {all, worker("m", runs("latest", "v1.36.1")), nil, lives{end: soon}, waiting, began.Add(30 * day)},

		"skew":                            {all, worker("m", runs("v1.33.0", "v1.34.0")), []client.Object{controlPlane("cp", runs("v1.36.0", "v1.36.0"))}, lives{}, skew, began.Add(7 * day)},
		"skew of two minors":              {all, worker("m", runs("v1.34.0", "v1.35.0")), []client.Object{controlPlane("cp", runs("v1.36.0", "v1.36.0"))}, lives{}, waiting, began.Add(30 * day)},
		"skew with another control plane": {all, worker("m", runs("v1.33.0", "v1.34.0")), []client.Object{controlPlane("cp", inCluster("c2"), runs("v1.36.0", "v1.36.0"))}, lives{}, waiting, began.Add(30 * day)},
		"skew that a patch leaves":        {all, worker("m", runs("v1.33.0", "v1.33.1")), []client.Object{controlPlane("cp", runs("v1.36.0", "v1.36.0"))}, lives{}, waiting, began.Add(30 * day)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.others, cluster("c1", nil, nil), tc.machine, update("m", since(began)))...).withDeadlines(tc.lives)
			w.add(weekly("a", "FR", deadline(tc.deadline)))
			w.Clock.SetTime(outside)
			d := w.ask("m")
			if tc.cause == "" {
				require.Nil(t, d.Due)
				return
			}
			require.NotNil(t, d.Due)
			require.Equal(t, tc.cause, d.Due.Cause)
			require.True(t, tc.at.Equal(d.Due.At), d.Due)
			require.Contains(t, d.Due.String(), "policy a has a deadline for this change at "+text(tc.at))
		})
	}
}

func TestSinceWhenAChangeIsWanted(t *testing.T) {
	when, before := metav1.NewTime(outside), metav1.NewTime(outside.Add(-day))
	for name, tc := range map[string]struct {
		status refitv1.MachineUpdateStatus
		want   *metav1.Time
	}{
		"nothing was":        {refitv1.MachineUpdateStatus{}, nil},
		"it waits":           {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, WantedSince: &before, StartedAt: &when}, &before},
		"of a server before": {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, StartedAt: &when}, &when},
		"it has failed":      {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseFailed, Reason: "NodeFailed", WantedSince: &before}, &before},
		"it was withdrawn":   {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseFailed, Reason: refitv1.ReasonWithdrawn, WantedSince: &before}, nil},
		"it was abandoned":   {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseFailed, ObservedAbandon: "now", WantedSince: &before}, nil},
		"it has succeeded":   {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, WantedSince: &before}, nil},
	} {
		require.Equal(t, tc.want, Wanted(&tc.status), name)
	}
}

func TestAChangeThatIsWantedLaterHasItsDeadlineLater(t *testing.T) {
	wanted := outside.Add(-5 * day)
	for name, tc := range map[string]struct {
		value string
		since time.Time
	}{
		"later":                  {text(wanted), wanted},
		"long ago":               {text(outside.Add(-29 * day)), outside.Add(-29 * day)},
		"what can't be read":     {"next week", outside.Add(-31 * day)},
		"a time that is to come": {text(outside.Add(day)), outside.Add(day)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1", annotated(refitv1.NotBeforeAnnotation, tc.value)), update("w1", since(outside.Add(-31*day)), takes("Restart"))).withDeadlines(nil)
			w.add(saturdays("a", opensAfter("30d")))
			w.Clock.SetTime(outside)
			d := w.ask("w1")
			require.Equal(t, text(tc.since.Add(30*day)), text(d.Due.At))
			require.False(t, d.Open, d.Message)
		})
	}
}

// TestNothingIsToldOfAWaitThatHasNotBegun: by default a deadline of three days is told from the beginning, but not before that.
func TestNothingIsToldOfAWaitThatHasNotBegun(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1", annotated(refitv1.NotBeforeAnnotation, text(outside.Add(day)))), update("w1", since(outside), takes("Restart"))).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("3d")))
	w.Clock.SetTime(outside)
	d := w.ask("w1")
	require.False(t, d.Near, d.Due)
	require.LessOrEqual(t, d.LookIn, day)
	w.Clock.SetTime(outside.Add(day))
	require.True(t, w.ask("w1").Near)
}

func TestPoliciesAndMetricsTellOfDeadlines(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), worker("w3"), worker("w4"),
		update("w1", since(outside.Add(-25*day))), update("w2", since(outside.Add(-10*day))), update("w3", since(outside.Add(-24*day))),
		update("w4", since(outside.Add(-100*day)), ended)).withDeadlines(nil)
	w.add(saturdays("a", opensAfter("30d")), saturdays("b"), saturdays("c", opensAfter("20d"), machines(map[string]string{"pool": "gpu"})))
	w.Clock.SetTime(outside)
	st, _ := w.show(w.status())
	c := meta.FindStatusCondition(st.Conditions, refitv1.DeadlineNearCondition)
	require.Equal(t, metav1.ConditionTrue, c.Status)
	require.Equal(t, "Waiting", c.Reason)
	require.Contains(t, c.Message, "the deadlines of 2 updates that wait are near or have passed; the first is that of Machine w1: policy a has a deadline for this change at "+text(outside.Add(5*day)))

	series := func() string {
		return gathered(t, &Collector{Client: w, Policies: w.policies, Clock: w.Clock, Waits: w.gate.Waits}, "deadline_timestamp_seconds", "deadline_near")
	}
	due := fmt.Sprint(`deadline_timestamp_seconds{cluster="c1",namespace="fleet",policy="a",role="Worker"} `, float64(outside.Add(5*day).Unix()))
	require.Equal(t, `deadline_near{cluster="",namespace="fleet",policy="c",role=""} 0
deadline_near{cluster="c1",namespace="fleet",policy="a",role="Worker"} 2
`+due, series())
	w.Clock.SetTime(outside.Add(50 * day))
	require.Contains(t, series(), due, "it has passed")

	w.Clock.SetTime(outside.Add(-20 * day))
	st, _ = w.show(w.status())
	require.Equal(t, metav1.ConditionFalse, meta.FindStatusCondition(st.Conditions, refitv1.DeadlineNearCondition).Status)
	w.Change("a", func(s *spec) { s.Deadline = nil })
	w.Reread("a")
	st, _ = w.show(w.status())
	require.Nil(t, meta.FindStatusCondition(st.Conditions, refitv1.DeadlineNearCondition))
}
