package nodedisruption

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// counting counts how often a status is written.
type counting struct {
	client.Client
	writes int
}

func (c *counting) Status() client.SubResourceWriter {
	return &countingWriter{c.Client.Status(), &c.writes}
}

type countingWriter struct {
	client.SubResourceWriter
	writes *int
}

func (w *countingWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	*w.writes++
	return w.SubResourceWriter.Update(ctx, obj, opts...)
}

// status is what shows the status of policies.
type status struct {
	*world
	shown  Status
	writes *counting
	events *events.FakeRecorder
}

func newStatus(t *testing.T, objects ...client.Object) *status {
	s := &status{world: newWorld(t, objects...), events: events.NewFakeRecorder(100)}
	s.writes = &counting{Client: s.world}
	s.shown = Status{Client: s.writes, Policies: s.policies, Recorder: s.events}
	return s
}

// show has the status of the policy a shown.
func (s *status) show() (*refitv1.NodeDisruptionPolicyStatus, time.Duration) {
	s.t.Helper()
	key := types.NamespacedName{Namespace: "fleet", Name: "a"}
	result, err := s.shown.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(s.t, err)
	return &s.get("a").Status, result.RequeueAfter
}

// ruleOf returns what the status says about one thing.
func ruleOf(t *testing.T, st *refitv1.NodeDisruptionPolicyStatus, kind, name string) refitv1.EffectiveRule {
	t.Helper()
	var found []refitv1.EffectiveRule
	for _, r := range st.Effective {
		if string(r.Kind) == kind && r.Name == name {
			found = append(found, r)
		}
	}
	require.Len(t, found, 1, "%s %s", kind, name)
	return found[0]
}

func TestStatus(t *testing.T) {
	s := newStatus(t, policy("a", file("/etc/motd", act(refitv1.DrainDisruption)), file("/opt/x", act(refitv1.RestartDisruption, "x.service")),
		unit("x.service", act(refitv1.ReloadDisruption, "x.service")), within("", act(refitv1.NoDisruption)), func(s *spec) { s.NTP.Unsafe = true }), policy("b", file("/opt/y", act(refitv1.NoDisruption))))
	st, again := s.show()
	require.Equal(t, statusRefresh, again)
	require.EqualValues(t, 1, st.ObservedGeneration)
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
	require.Equal(t, []string{"Drain"}, ruleOf(t, st, "File", "/etc/motd").Actions)
	require.Equal(t, "a", ruleOf(t, st, "File", "/etc/motd").From)
	require.Equal(t, []string{"Restart x.service"}, ruleOf(t, st, "File", "/opt/x").Actions)
	require.Equal(t, "built-in", ruleOf(t, st, "File", "/etc/issue").From)
	require.Equal(t, "a", ruleOf(t, st, "Unit", "x.service").From)
	require.Equal(t, "a", ruleOf(t, st, "NTP", "").From)
	require.Equal(t, []string{"None"}, ruleOf(t, st, "NTP", "").Actions)
	require.Equal(t, "built-in", ruleOf(t, st, "Users", "").From)
	for _, r := range st.Effective {
		require.NotEqual(t, "/opt/y", r.Name, "those of other policies are not in it")
	}
	first := st.DeepCopy()
	for range 3 {
		st, _ = s.show()
	}
	require.Equal(t, first, st)
	require.Equal(t, 1, s.writes.writes, "what has not changed is not written")

	s.change("a", func(sp *spec) { sp.Files = nil })
	_, again = s.show()
	require.Equal(t, time.Second, again, "this version was not read yet")
	require.Equal(t, 1, s.writes.writes)
	s.reread("a")
	st, _ = s.show()
	require.EqualValues(t, 2, st.ObservedGeneration)
	require.Equal(t, "built-in", ruleOf(t, st, "File", "/etc/motd").From)
	require.Empty(t, s.events.Events, "that it can be read is no news")
}

func TestStatusCountsMachines(t *testing.T) {
	control := map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	s := newStatus(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil),
		machine("w1", "c1", nil), machine("w2", "c1", nil), machine("cp1", "c1", control), machine("w3", "c2", nil), machine("w4", "gone", nil),
		policy("a", clusters(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole)))
	st, _ := s.show()
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.NoError(t, s.Create(t.Context(), machine("w5", "c1", nil)))
	st, _ = s.show()
	require.EqualValues(t, 3, *st.SelectedMachines)
}

func TestStatusOfAPolicyThatCanNotBeRead(t *testing.T) {
	s := newStatus(t, policy("a", file("/a", act("Explode"))), policy("b"))
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s.policies.Collector())
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_node_disruption_policy_ready Whether the NodeDisruptionPolicy can be read: 0 no, and no change of the Machines that it selects is decided; 1 yes.
# TYPE refit_node_disruption_policy_ready gauge
refit_node_disruption_policy_ready{namespace="fleet",policy="a"} 0
refit_node_disruption_policy_ready{namespace="fleet",policy="b"} 1
`)))
	st, _ := s.show()
	c := apimeta.FindStatusCondition(st.Conditions, refitv1.ReadyCondition)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, reasonInvalid, c.Reason)
	require.Contains(t, c.Message, `unknown action "Explode"`)
	require.Empty(t, st.Effective, "nothing is in force by it")
	require.Regexp(t, `^Warning InvalidPolicy the policy can't be read`, <-s.events.Events)
	s.show()
	require.Empty(t, s.events.Events, "once is enough")
	s.change("a", func(sp *spec) { sp.Files = nil })
	s.reread("a")
	s.show()
	require.Equal(t, "Normal Read the policy can be read", <-s.events.Events)
}

func TestStatusOfWhatIsNotThere(t *testing.T) {
	s := newStatus(t)
	result, err := s.shown.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}})
	require.NoError(t, err)
	require.Zero(t, result)
	s = newStatus(t, policy("a"))
	s.shown.Policies = s.newPolicies()
	_, again := s.show()
	require.Equal(t, time.Second, again, "the policies were not read yet")
}
