package loginprobe

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// fleet are nodes that answer, but for those in down, and what probes them.
type fleet struct {
	client.Client
	t      *testing.T
	clock  *clocktesting.FakeClock
	probe  *Prober
	status *Status
	events *events.FakeRecorder
	down   map[string]Finding
	off    map[string]bool
	tried  []string
	told   map[types.UID]string // resourceVersions
}

func (f *fleet) SkipsLogin(_ context.Context, m *clusterv1.Machine, _ *refitv1.MachineUpdate) bool {
	return f.off[m.Name]
}

func (f *fleet) TryLogin(_ context.Context, m types.NamespacedName) (*Finding, error) {
	f.tried = append(f.tried, m.Name)
	found := f.down[m.Name]
	return &found, nil
}

// newFleet has so many Machines, m00 and on, which are older than a day, as all is.
func newFleet(t *testing.T, machines int) *fleet {
	old := metav1.NewTime(managementtest.Start.Add(-48 * time.Hour))
	objects := []client.Object{&refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "all", Generation: 1, CreationTimestamp: old}}}
	for i := range machines {
		objects = append(objects, managementtest.Machine("lab", fmt.Sprintf("m%02d", i), "c1", func(m *clusterv1.Machine) { m.CreationTimestamp = old }))
	}
	f := &fleet{
		Client: managementtest.New(objects...), t: t, clock: clocktesting.NewFakeClock(managementtest.Start), down: map[string]Finding{}, off: map[string]bool{},
	}
	f.restart()
	return f
}

// restart has another process go on.
func (f *fleet) restart() {
	f.events = events.NewFakeRecorder(100)
	f.probe = &Prober{Client: f, Clock: f.clock, Nodes: f, Interval: time.Hour, Metrics: NewMetrics(prometheus.NewPedanticRegistry())}
	f.status = &Status{Client: f, Prober: f.probe, Recorder: f.events}
	f.told = map[types.UID]string{}
	require.NoError(f.t, f.status.Watch(f.t.Context(), managementtest.Silent{}))
	f.tried = nil
}

// tell tells what has changed since it did so last, as informers do.
func (f *fleet) tell() {
	there := map[types.UID]string{}
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &refitv1.MachineUpdateList{}, &refitv1.NodeAccessList{}} {
		require.NoError(f.t, f.List(f.t.Context(), list))
		require.NoError(f.t, meta.EachListItem(list, func(obj runtime.Object) error {
			o := obj.(client.Object)
			key := types.UID(fmt.Sprintf("%T %s %s", o, o.GetUID(), client.ObjectKeyFromObject(o)))
			if there[key] = o.GetResourceVersion(); f.told[key] != there[key] {
				f.status.changes.OnAdd(o, false)
			}
			return nil
		}))
	}
	for key := range f.told {
		if _, ok := there[key]; !ok {
			f.status.changes.OnDelete(f.access())
		}
	}
	f.told = there
}

// run has time go by, a minute at a time, and looks at all Machines and NodeAccesses each time. It returns how many logins there were at most in one.
func (f *fleet) run(d time.Duration) (most int) {
	for end := f.clock.Now().Add(d); f.clock.Now().Before(end); f.clock.Step(time.Minute) {
		before := len(f.tried)
		f.look()
		most = max(most, len(f.tried)-before)
	}
	return most
}

func (f *fleet) look() {
	var machines clusterv1.MachineList
	require.NoError(f.t, f.List(f.t.Context(), &machines))
	for i := range machines.Items {
		_, err := f.probe.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		require.NoError(f.t, err)
	}
	f.tell()
	var accesses refitv1.NodeAccessList
	require.NoError(f.t, f.List(f.t.Context(), &accesses))
	for i := range accesses.Items {
		_, err := f.status.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&accesses.Items[i])})
		require.NoError(f.t, err)
	}
}

func (f *fleet) access() *refitv1.NodeAccess {
	var na refitv1.NodeAccess
	require.NoError(f.t, f.Get(f.t.Context(), client.ObjectKey{Namespace: "lab", Name: "all"}, &na))
	return &na
}

// requireReady demands what a NodeAccess shows.
func (f *fleet) requireReady(status metav1.ConditionStatus, reason, message string) *refitv1.NodeAccess {
	f.t.Helper()
	na := f.access()
	c := meta.FindStatusCondition(na.Status.Conditions, refitv1.ReadyCondition)
	require.NotNil(f.t, c)
	require.Equal(f.t, status, c.Status, c.Message)
	require.Equal(f.t, reason, c.Reason)
	require.Contains(f.t, c.Message, message)
	return na
}

func (f *fleet) requireCounts(machines, reachable, unreachable int) {
	f.t.Helper()
	s := f.access().Status
	require.Equal(f.t, []int{machines, reachable, unreachable}, []int{int(*s.Machines), int(*s.Reachable), int(*s.Unreachable)})
}

var refused = Finding{refitv1.ReasonUnreachable, "the node can't be reached: connection refused"}

func TestTheStatusShowsWhichNodesCantBeReached(t *testing.T) {
	f := newFleet(t, 3)
	f.down["m01"] = refused
	f.look()
	f.requireReady(metav1.ConditionUnknown, refitv1.NodeAccessNotTried, "of 3 nodes 3 were not tried yet")
	require.Empty(t, f.tried, "none at once")
	f.run(time.Hour + time.Minute)
	na := f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "of 3 nodes 1 can't be reached: m01 (Unreachable): the node can't be reached: connection refused")
	f.requireCounts(3, 2, 1)
	since := na.Status.Unreached[0].Since
	require.Equal(t, []refitv1.UnreachedMachine{{Name: "m01", Reason: refused.Reason, Message: refused.Message, Since: since}}, na.Status.Unreached)
	require.Contains(t, <-f.events.Events, "Warning Unreached of 3 nodes 1")

	f.run(2 * time.Hour)
	require.True(t, f.access().Status.Unreached[0].Since.Equal(&since), "since the first failure")
	delete(f.down, "m01")
	f.run(time.Hour + time.Minute)
	na = f.requireReady(metav1.ConditionTrue, refitv1.NodeAccessReached, "")
	require.Empty(t, na.Status.Unreached)
	f.requireCounts(3, 3, 0)
	require.Contains(t, <-f.events.Events, "Normal Reached")
	require.Empty(t, f.events.Events, "no Event but for what has become news")
}

// TestLoginsAreATrickle: each node has its own moment in the hour, and none comes at once after a restart.
func TestLoginsAreATrickle(t *testing.T) {
	f := newFleet(t, 60)
	for range 2 {
		most := f.run(time.Hour + time.Minute)
		require.LessOrEqual(t, most, 7, "one a minute, on average")
		require.GreaterOrEqual(t, len(f.tried), 60)
		require.LessOrEqual(t, len(f.tried), 63)
		f.restart()
		f.look()
		require.Empty(t, f.tried)
	}
}

// TestARestartForgetsNothing: what the status said holds until the nodes were tried again.
func TestARestartForgetsNothing(t *testing.T) {
	f := newFleet(t, 5)
	f.down["m01"] = refused
	f.run(time.Hour + time.Minute)
	before := f.access().Status
	f.restart()
	f.look()
	require.Equal(t, before, f.access().Status)

	// A Machine that came meanwhile was not tried, and is soon.
	require.NoError(t, f.Create(t.Context(), managementtest.Machine("lab", "m99", "c1", func(m *clusterv1.Machine) { m.CreationTimestamp = metav1.NewTime(f.clock.Now()) })))
	delete(f.down, "m01")
	f.restart()
	f.look()
	f.requireCounts(6, 4, 1)
	f.run(soon + time.Minute)
	f.requireCounts(6, 6, 0)
}

func TestWhatIsWrittenOnlyWhenItHasChanged(t *testing.T) {
	f := newFleet(t, 3)
	f.run(time.Hour + time.Minute)
	before := f.access()
	f.run(50 * time.Minute)
	require.Equal(t, before.ResourceVersion, f.access().ResourceVersion, "that all is as it was is no news")
	f.run(time.Hour)
	require.True(t, f.access().Status.ProbedAt.After(before.Status.ProbedAt.Time), "but that it goes on is to be seen")
}

// TestAChangedNodeAccessIsTriedSoon: who has corrected it does not wait for an hour.
func TestAChangedNodeAccessIsTriedSoon(t *testing.T) {
	f := newFleet(t, 40)
	f.run(time.Hour + time.Minute)
	f.tried = nil
	na := f.access()
	na.Generation++
	na.Spec.SSH.User = "other"
	require.NoError(t, f.Update(t.Context(), na))
	require.LessOrEqual(t, f.run(soon+time.Minute), 15)
	require.GreaterOrEqual(t, len(f.tried), 40)
}

func TestNobodyLogsInWhereThatIsNotToBe(t *testing.T) {
	f := newFleet(t, 4)
	f.off["m00"] = true
	f.edit("m01", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
	var m clusterv1.Machine
	require.NoError(t, f.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "m02"}, &m))
	require.NoError(t, f.Create(t.Context(), managementtest.MachineUpdate(&m, func(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseApplying })))
	f.run(2 * time.Hour)
	require.NotEmpty(t, f.tried)
	for _, name := range f.tried {
		require.Equal(t, "m03", name)
	}
	f.requireReady(metav1.ConditionUnknown, refitv1.NodeAccessNotTried, "of 3 nodes 2 were not tried yet")
}

func (f *fleet) edit(name string, edit func(*clusterv1.Machine)) {
	var m clusterv1.Machine
	require.NoError(f.t, f.Get(f.t.Context(), client.ObjectKey{Namespace: "lab", Name: name}, &m))
	edit(&m)
	require.NoError(f.t, f.Update(f.t.Context(), &m))
}

// TestWhatUpdatesAndComparisonsTell: they log in, too, so that nobody else has to.
func TestWhatUpdatesAndComparisonsTell(t *testing.T) {
	now := metav1.NewTime(managementtest.Start)
	before := metav1.NewTime(now.Add(-time.Minute))
	later := metav1.NewTime(now.Add(-time.Second))
	failed := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: refitv1.DriftedCondition, Status: metav1.ConditionUnknown, Reason: reason, Message: "why"}}
	}
	for name, tc := range map[string]struct {
		status refitv1.MachineUpdateStatus
		want   Finding
		at     time.Time
	}{
		"nothing":                        {status: refitv1.MachineUpdateStatus{Phase: refitv1.PhasePending}},
		"an update that waits for it":    {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonHostKey, Message: "why"}, Finding{refitv1.ReasonHostKey, "why"}, now.Time},
		"one that waits for a reboot":    {status: refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonUnreachable, RebootingSince: &before}},
		"one that waits for a window":    {status: refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonWindow}},
		"one that has succeeded":         {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, FinishedAt: &before}, Finding{}, before.Time},
		"a comparison":                   {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, FinishedAt: &before, Drift: &refitv1.DriftStatus{CheckedAt: &later, ComparedAt: &later}}, Finding{}, later.Time},
		"a comparison that has failed":   {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, FinishedAt: &before, Drift: &refitv1.DriftStatus{CheckedAt: &later}, Conditions: failed(refitv1.ReasonUnreachable)}, Finding{refitv1.ReasonUnreachable, "why"}, later.Time},
		"a comparison that was not made": {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, FinishedAt: &before, Drift: &refitv1.DriftStatus{CheckedAt: &later}, Conditions: failed(refitv1.ReasonWindow)}, Finding{}, before.Time},
	} {
		t.Run(name, func(t *testing.T) {
			f, at, ok := told(&refitv1.MachineUpdate{Status: tc.status}, now.Time)
			require.Equal(t, !tc.at.IsZero(), ok)
			require.Equal(t, tc.want, f)
			require.True(t, at.Equal(tc.at), at)
		})
	}
}

func TestAnUpdateThatWaitsForItsNodeShowsAtTheNodeAccess(t *testing.T) {
	f := newFleet(t, 2)
	var m clusterv1.Machine
	require.NoError(t, f.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "m00"}, &m))
	require.NoError(t, f.Create(t.Context(), managementtest.MachineUpdate(&m, func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason, mu.Status.Message = refitv1.PhaseWaiting, refitv1.ReasonUnreachable, "no route to host"
	})))
	f.look()
	f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "m00 (Unreachable): no route to host")
	require.Empty(t, f.tried)
}

func TestAMachineThatSeveralNodeAccessesSelect(t *testing.T) {
	f := newFleet(t, 1)
	require.NoError(t, f.Create(t.Context(), &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "other"}}))
	f.run(2 * time.Minute)
	na := f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "m00 (NodeAccess): the NodeAccesses all, other all select Machine m00")
	require.True(t, na.Status.Unreached[0].Since.Time.Equal(managementtest.Start))
	require.Empty(t, f.tried)
}

func TestNodeAccessesThatSelectNothing(t *testing.T) {
	f := newFleet(t, 0)
	f.look()
	f.requireReady(metav1.ConditionUnknown, refitv1.NodeAccessNoMachines, "")
	na := f.access()
	na.Spec.MachineSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	require.NoError(t, f.Update(t.Context(), na))
	require.NoError(t, f.Create(t.Context(), managementtest.Machine("lab", "m00", "c1")))
	f.look()
	f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessInvalid, "spec.machineSelector")
}

// TestAShardThatIsAcquiredIsLookedAtAnew: others have looked after it meanwhile.
func TestAShardThatIsAcquiredIsLookedAtAnew(t *testing.T) {
	f := newFleet(t, 2)
	f.run(time.Hour + time.Minute)
	f.probe.known.forget(func(string) bool { return true })
	require.Empty(t, f.probe.known.records)
	f.tried = nil
	f.look()
	require.Empty(t, f.tried, "what is due is not due at once")
	f.requireCounts(2, 2, 0)
}

func TestMetrics(t *testing.T) {
	f := newFleet(t, 3)
	f.down["m01"] = refused
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&Collector{Client: f})
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(""), "refit_nodeaccess_machines"), "nobody has looked yet")
	f.run(time.Hour + time.Minute)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP refit_nodeaccess_machines Machines with a node that a NodeAccess selects.
# TYPE refit_nodeaccess_machines gauge
refit_nodeaccess_machines{namespace="lab",nodeaccess="all"} 3
# HELP refit_nodeaccess_unreached_machines Machines that a NodeAccess selects and to whose node the last login failed.
# TYPE refit_nodeaccess_unreached_machines gauge
refit_nodeaccess_unreached_machines{namespace="lab",nodeaccess="all"} 1
`)))
	require.InDelta(t, 2, testutil.ToFloat64(f.probe.Metrics.probes.WithLabelValues("Reached")), 1)
	require.Positive(t, testutil.ToFloat64(f.probe.Metrics.probes.WithLabelValues(refitv1.ReasonUnreachable)))
}
