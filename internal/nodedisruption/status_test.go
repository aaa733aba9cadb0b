package nodedisruption

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/internal/resync"
)

// status is what shows the status of policies.
type status struct {
	*world
	shown Status
}

func newStatus(t *testing.T, objects ...client.Object) *status {
	s := &status{world: newWorld(t, objects...)}
	s.shown = Status{Client: s.world, Policies: s.policies, Recorder: s.Events}
	return s
}

// show has the status of the policy a shown.
func (s *status) show() (*refitv1.NodeDisruptionPolicyStatus, time.Duration) {
	s.T.Helper()
	again := s.Reconcile(&s.shown, "a").RequeueAfter
	return &s.Policy("a").Status, again
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
	require.Greater(t, again, resync.Every/2, "what has changed wakes it")
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
	require.Equal(t, 1, s.StatusWrites, "what has not changed is not written")

	s.Change("a", func(sp *spec) { sp.Files = nil })
	_, again = s.show()
	require.Equal(t, time.Second, again, "this version was not read yet")
	require.Equal(t, 1, s.StatusWrites)
	s.Reread("a")
	st, _ = s.show()
	require.EqualValues(t, 2, st.ObservedGeneration)
	require.Equal(t, "built-in", ruleOf(t, st, "File", "/etc/motd").From)
	s.RequireNoEvent("that it can be read is no news")
}

func TestStatusCountsMachines(t *testing.T) {
	s := newStatus(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil),
		machine("w1", "c1"), machine("w2", "c1"), machine("cp1", "c1", policykindtest.ControlPlane), machine("w3", "c2"), machine("w4", "gone"),
		policy("a", clusters(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole)))
	st, _ := s.show()
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.NoError(t, s.Create(t.Context(), machine("w5", "c1")))
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
	s.RequireEvent(`^Warning InvalidPolicy the policy can't be read`)
	s.show()
	s.RequireNoEvent("once is enough")
	s.Change("a", func(sp *spec) { sp.Files = nil })
	s.Reread("a")
	s.show()
	s.RequireEvent("^Normal Read the policy can be read$")
}

func TestStatusOfWhatIsNotThere(t *testing.T) {
	s := newStatus(t)
	require.Zero(t, s.Reconcile(&s.shown, "a"))
	s = newStatus(t, policy("a"))
	s.shown.Policies = s.newPolicies()
	_, again := s.show()
	require.Equal(t, time.Second, again, "the policies were not read yet")
}
