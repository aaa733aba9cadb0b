package explain

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
)

// machine returns one of which Cluster API says whether it is up to date.
func machine(name string, upToDate metav1.ConditionStatus, edits ...func(*clusterv1.Machine)) clusterv1.Machine {
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "fleet", Labels: map[string]string{}}}
	m.Spec.ClusterName = "prod"
	m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpToDateCondition, Status: upToDate, Reason: "Tests"}}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func annotated(name string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Annotations = map[string]string{name: ""} }
}

// change is one of a field of a bootstrap config.
func change(t *testing.T, field string) fieldset.Change {
	t.Helper()
	spec := func(value any) fieldset.Spec { return fieldset.Spec{Value: map[string]any{field: value}} }
	c, differs := fieldset.NewObjectChange(fieldset.BootstrapConfig, spec("one"), spec("two"))
	require.True(t, differs)
	return fieldset.Change{c}
}

// timetable opens for each machine an hour later than for the one before it, and forbids replacements if it is to.
type timetable struct {
	forbids bool
	asked   []string
}

func (w *timetable) When(_ context.Context, q Question) (*When, error) {
	w.asked = append(w.asked, q.Machine.Name)
	at := now.Add(time.Duration(len(w.asked)) * time.Hour)
	out := &When{NotBefore: &at, Reason: "OutsideWindow", Policies: []string{"saturdays"}, Expected: Duration(20 * time.Minute)}
	if w.forbids && q.Replaces {
		out.ForbiddenBy = []string{"policy saturdays"}
	}
	return out, nil
}

func TestPendingOfWorkers(t *testing.T) {
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	old, deleted := now.Add(-time.Hour), metav1.NewTime(now)
	for name, c := range map[string]struct {
		owner   []string
		lots    []Lot
		verdict Verdict
		counts  Counts
		why     string // of the first machine
	}{
		"none":                          {nil, nil, None, Counts{}, ""},
		"nothing waits":                 {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", yes)}, Made: old}}, None, Counts{Total: 1}, ""},
		"in place":                      {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no), machine("b", no)}, Change: change(t, "x"), Made: old}}, InPlace, Counts{Total: 2, InPlace: 2}, ""},
		"before Cluster API has looked": {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", yes)}, Change: change(t, "x"), Made: old}}, InPlace, Counts{Total: 1, InPlace: 1}, ""},
		"replaced":                      {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no)}, Change: change(t, "bad"), Made: old}}, Replace, Counts{Total: 1, Replaced: 1}, "spec.bad: it is bad"},
		"two MachineSets":               {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no)}, Change: change(t, "bad"), Made: old}, {Machines: []clusterv1.Machine{machine("b", yes)}}}, Replace, Counts{Total: 2, Replaced: 1}, "spec.bad: it is bad"},
		"it can't be told":              {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no)}, Err: errors.New("a template is gone")}}, Unknown, Counts{Total: 1}, "a template is gone"},
		"it need not be":                {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", yes)}, Err: errors.New("a template is gone")}}, None, Counts{Total: 1}, ""},
		"nobody says so":                {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", metav1.ConditionUnknown)}, Err: errors.New("a template is gone")}}, Unknown, Counts{Total: 1}, "a template is gone"},
		"marked for deletion":           {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no, annotated(clusterv1.DeleteMachineAnnotation))}, Change: change(t, "x"), Made: old}}, Replace, Counts{Total: 1, Replaced: 1}, "has Cluster API replace it without asking anybody"},
		"under way":                     {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no, annotated(clusterv1.UpdateInProgressAnnotation))}, Change: change(t, "x"), Made: old}}, InPlace, Counts{Total: 1, InPlace: 1}, "it is being updated in place now"},
		"being deleted":                 {nil, []Lot{{Machines: []clusterv1.Machine{machine("a", no, func(m *clusterv1.Machine) { m.DeletionTimestamp = &deleted })}, Change: change(t, "x"), Made: old}}, None, Counts{Total: 1, Deleted: 1}, "it is being deleted"},
		"OnDelete":                      {[]string{"type: RollingUpdate", "type: OnDelete"}, []Lot{{Machines: []clusterv1.Machine{machine("a", no)}, Change: change(t, "bad"), Made: old}}, OnDelete, Counts{Total: 1}, "spec.bad: it is bad"},
		"rollout.after":                 {[]string{"rollout: {strategy: {type", "rollout: {after: \"2026-10-03T19:30:00Z\", strategy: {type"}, []Lot{{Machines: []clusterv1.Machine{machine("a", no)}, Made: old}}, Replace, Counts{Total: 1, Replaced: 1}, ""},
		"after rollout.after":           {[]string{"rollout: {strategy: {type", "rollout: {after: \"2026-10-03T18:30:00Z\", strategy: {type"}, []Lot{{Machines: []clusterv1.Machine{machine("a", yes)}, Made: old}}, None, Counts{Total: 1}, ""},
		"a surge":                       {[]string{"maxSurge: 0, maxUnavailable: 2", "maxSurge: 1"}, []Lot{{Machines: []clusterv1.Machine{machine("a", no), machine("b", no)}, Change: change(t, "x"), Made: old}}, InPlace, Counts{Total: 2, InPlace: 1, Replaced: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, base, c.owner...)
			owner := s.Get(Key{deployments, "fleet", "workers"})
			o, err := (&Explainer{Judge: &judge{}, Now: now}).Pending(t.Context(), owner, c.lots)
			require.NoError(t, err)
			require.Equal(t, c.verdict, o.Verdict)
			require.Equal(t, c.counts, o.Machines)
			if c.why != "" {
				require.Contains(t, o.Each[0].Why, c.why)
			}
		})
	}
}

// TestWhatIsAskedForAlready has machines whose objects are as they are to be: their updates wait, have started, or have been asked for by nobody.
func TestWhatIsAskedForAlready(t *testing.T) {
	const no = metav1.ConditionFalse
	updating := annotated(clusterv1.UpdateInProgressAnnotation)
	lots := []Lot{{Made: now.Add(-time.Hour), Machines: []clusterv1.Machine{machine("a", no, updating), machine("b", no, updating), machine("c", no, updating)}, Updates: map[string]Update{
		"a": {Disruption: disruption.Reboot, Actions: []string{"Reboot"}}, "b": {}, "c": {Started: true, Disruption: disruption.Restart},
	}}}
	o, err := (&Explainer{Judge: &judge{}, Now: now, Timetable: &timetable{}}).Pending(t.Context(), set(t, base).Get(Key{deployments, "fleet", "workers"}), lots)
	require.NoError(t, err)
	require.Equal(t, InPlace, o.Verdict)
	require.Equal(t, Counts{Total: 3, InPlace: 3}, o.Machines)
	require.Equal(t, disruption.Reboot, o.Disruption)
	require.Equal(t, []string{"Reboot"}, o.Actions)
	var names []string
	for _, m := range o.Each {
		names = append(names, m.Name)
	}
	require.Equal(t, []string{"c", "a", "b"}, names, "what has started comes first")
	require.Equal(t, "Started", o.Each[0].When.Reason)
	require.Contains(t, o.Each[0].Why, "it is being updated in place now")
	require.Equal(t, now.Add(time.Hour), *o.Each[1].When.NotBefore)
	require.Equal(t, "Cluster API has asked for it, and it waits", o.Each[1].Why)
	require.Empty(t, o.Each[2].Disruption, "its node has said nothing")
	f := &Forecast{Owners: []*Owner{o}}
	require.Len(t, f.Reaches(disruption.Drain), 1)
	require.Len(t, f.Reaches(disruption.Replace), 1, "what b takes can't be told")
}

func TestPendingOfAControlPlane(t *testing.T) {
	owner := set(t, base).Get(Key{controlPlanes, "fleet", "cp"})
	pending := func(lots ...Lot) *Owner {
		o, err := (&Explainer{Judge: &judge{}, Now: now}).Pending(t.Context(), owner, lots)
		require.NoError(t, err)
		return o
	}
	o := pending(Lot{Machines: []clusterv1.Machine{machine("a", metav1.ConditionTrue)}, Change: change(t, "bad")})
	require.Equal(t, None, o.Verdict, "a machine has more than its control plane compares")
	o = pending(Lot{Machines: []clusterv1.Machine{machine("a", metav1.ConditionFalse)}})
	require.Equal(t, Replace, o.Verdict)
	require.Equal(t, "the owner wants another machine without another specification", o.Each[0].Why)
	o = pending(Lot{Machines: []clusterv1.Machine{machine("a", metav1.ConditionFalse)}, Change: change(t, "x")}, Lot{Machines: []clusterv1.Machine{machine("b", metav1.ConditionFalse)}, Change: change(t, "bad")})
	require.Equal(t, Replace, o.Verdict)
	require.Equal(t, Counts{Total: 2, InPlace: 1, Replaced: 1}, o.Machines)
	require.Equal(t, 1, o.AtOnce)
}

func TestWhenOfMachines(t *testing.T) {
	machines := []clusterv1.Machine{machine("b", metav1.ConditionFalse), machine("a", metav1.ConditionFalse)}
	explained := func(w *timetable, field string) *Owner {
		owner := set(t, base).Get(Key{deployments, "fleet", "workers"})
		o, err := (&Explainer{Judge: &judge{}, Timetable: w, Now: now}).Pending(t.Context(), owner, []Lot{{Machines: machines, Change: change(t, field), Made: now}})
		require.NoError(t, err)
		return o
	}
	o := explained(&timetable{}, "x")
	require.Equal(t, []string{"b", "a"}, []string{o.Each[0].Name, o.Each[1].Name}, "the first comes first")
	require.Equal(t, now.Add(time.Hour), *o.When.NotBefore)
	require.Equal(t, Duration(20*time.Minute), o.When.AtLeast, "both at once")

	o = explained(&timetable{forbids: true}, "bad")
	require.Equal(t, Forbidden, o.Verdict)
	require.Equal(t, Counts{Total: 2}, o.Machines)
	require.Equal(t, disruption.None, o.Each[0].Disruption)
	o.Estimate(now)
	require.Equal(t, now, *o.When.LastDone)
}

// What is told of an owner is told of each of its machines.
func TestMachinesOfAnOwner(t *testing.T) {
	e := &Explainer{Judge: &judge{}, Now: now}
	f, err := e.Compare(t.Context(), set(t, base), set(t, base, append(moved, "secret-one", "x")...))
	require.NoError(t, err)
	o := of(t, f, workers)
	require.NoError(t, e.Machines(t.Context(), o, []clusterv1.Machine{machine("a", metav1.ConditionTrue), machine("b", metav1.ConditionTrue, annotated(clusterv1.RemediateMachineAnnotation))}))
	require.Equal(t, InPlace, o.Each[0].Verdict)
	require.Equal(t, Replace, o.Each[1].Verdict)
	require.Equal(t, Replace, o.Verdict)
	require.Equal(t, Counts{Total: 4, InPlace: 3, Replaced: 1}, o.Machines)
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{20 * time.Minute: "20m", time.Hour: "1h", 90 * time.Minute: "1h30m", 61 * time.Second: "1m1s", 0: "0m"} {
		require.Equal(t, want, Duration(d).String())
	}
}
