package nodedisruption

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

func TestUnreadPoliciesAreNotNoPolicies(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), policy("a"))
	w.policies = w.newPolicies()
	require.ErrorContains(t, w.policies.Ready(), "have not been read yet")
	_, err := w.policies.For(t.Context(), worker)
	require.ErrorContains(t, err, "have not been read yet")
	require.Equal(t, time.Second, w.Reconcile(w.policies, "a").RequeueAfter, "one of them is not all of them")
	require.ErrorContains(t, w.policies.Ready(), "have not been read yet")
	w.Down = true
	require.ErrorIs(t, w.policies.Prime(t.Context()), policykindtest.ErrDown)
	require.ErrorContains(t, w.policies.Ready(), "have not been read yet")
	w.Down = false
	require.NoError(t, w.policies.Prime(t.Context()))
	require.NoError(t, w.policies.Ready())
	require.Equal(t, []string{"a"}, w.selected(worker).Policies)
}

func TestWhichPoliciesCount(t *testing.T) {
	w := newWorld(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil),
		policy("of-all"), policy("of-prod", clusters(map[string]string{"env": "prod"})), policy("of-control-planes", roles(refitv1.ControlPlaneRole)),
		policy("of-pool", func(s *spec) { s.Selector.Machines.MatchLabels = map[string]string{"pool": "gpu"} }))
	other := policy("of-others")
	other.Namespace = "other"
	require.NoError(t, w.Create(t.Context(), other))
	require.NoError(t, w.policies.Prime(t.Context()))
	for name, tc := range map[string]struct {
		of   inplace.Subject
		want []string
	}{
		"a worker":                  {worker, []string{"of-all", "of-prod"}},
		"a control plane":           {inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}, []string{"of-all", "of-control-planes", "of-prod"}},
		"by a label of the machine": {inplace.Subject{Namespace: "fleet", Cluster: "c2", Labels: map[string]string{"pool": "gpu"}}, []string{"of-all", "of-pool"}},
		"another cluster":           {inplace.Subject{Namespace: "fleet", Cluster: "c2"}, []string{"of-all"}},
		"a namespace without any":   {inplace.Subject{Namespace: "none", Cluster: "c1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, w.selected(tc.of).Policies)
		})
	}
	m, err := w.policies.Machine(t.Context(), machine("m", "c2", policykindtest.Label("pool", "gpu")))
	require.NoError(t, err)
	require.Equal(t, []string{"of-all", "of-pool"}, m.Policies)
}

func TestAnErrorIsNeverANo(t *testing.T) {
	t.Run("a cluster that can't be found", func(t *testing.T) {
		w := newWorld(t, policy("a"))
		_, err := w.policies.For(t.Context(), worker)
		require.ErrorContains(t, err, "read Cluster fleet/c1")
	})
	t.Run("a cluster that can't be read", func(t *testing.T) {
		w := newWorld(t, cluster("c1", nil), policy("a"))
		w.Down = true
		_, err := w.policies.For(t.Context(), worker)
		require.ErrorIs(t, err, policykindtest.ErrDown)
	})
	t.Run("a policy that can't be read", func(t *testing.T) {
		w := newWorld(t, cluster("c1", nil), policy("a", roles(refitv1.WorkerRole), file("/etc/app")))
		_, err := w.policies.For(t.Context(), worker)
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "a", invalid.Policy)
		require.ErrorContains(t, err, "NodeDisruptionPolicy a can't be read")
		require.ErrorContains(t, err, "files[/etc/app].actions: it is empty")
		_, err = w.policies.For(t.Context(), inplace.Subject{
			Namespace: "fleet", Cluster: "c1", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""},
		})
		require.NoError(t, err, "those that it does not select are no worse off")
	})
	t.Run("a namespace without policies needs no cluster", func(t *testing.T) {
		w := newWorld(t)
		w.Down = true
		_, err := w.policies.For(t.Context(), worker)
		require.NoError(t, err)
	})
}

func TestPoliciesAreReadAgain(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), policy("b"))
	require.NoError(t, w.Create(t.Context(), policy("a", file("/etc/app", act(refitv1.NoDisruption)))))
	require.Equal(t, []string{"b"}, w.selected(worker).Policies, "not known yet")
	require.Zero(t, w.Reread("a"))
	require.Equal(t, []string{"a", "b"}, w.selected(worker).Policies)
	actions, err := w.selected(worker).Rules.Actions("/etc/app/x")
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, actions)

	w.Change("a", func(s *spec) { s.Files = nil }, file("/etc/app", act(refitv1.DrainDisruption)))
	w.Reread("a")
	actions, err = w.selected(worker).Rules.Actions("/etc/app/x")
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.Drain}}, actions)

	w.Down = true
	_, err = w.policies.Reconcile(t.Context(), policykindtest.Request("a"))
	require.ErrorIs(t, err, policykindtest.ErrDown)
	w.Down = false
	require.Equal(t, []string{"a", "b"}, w.selected(worker).Policies, "what can't be read again stays")

	require.NoError(t, w.Delete(t.Context(), w.Policy("a")))
	w.Reread("a")
	require.Equal(t, []string{"b"}, w.selected(worker).Policies)
	_, err = w.selected(worker).Rules.Actions("/etc/app/x")
	require.Error(t, err, "what a policy allowed goes with it")
}

func TestWhatPoliciesMakeTogetherIsKept(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), cluster("c2", nil), policy("a"), policy("b", roles(refitv1.WorkerRole)))
	first := w.selected(worker)
	require.Same(t, first, w.selected(inplace.Subject{Namespace: "fleet", Cluster: "c2"}), "the same policies select it")
	require.Equal(t, 1, w.built)
	control := inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}
	require.NotSame(t, first, w.selected(control))
	require.Equal(t, 2, w.built)
	w.Change("b", file("/etc/app", act(refitv1.NoDisruption)))
	w.Reread("b")
	require.NotSame(t, first, w.selected(worker), "another generation is another policy")
	w.selected(control)
	require.Equal(t, 3, w.built)
	reads := w.reads
	w.selected(worker)
	require.Equal(t, reads+1, w.reads, "nothing but the Cluster is read")
}

// TestPoliciesChangeWhileHooksAsk is for the race detector.
func TestPoliciesChangeWhileHooksAsk(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), policy("a"))
	calls := NewPolicies(w.Client, disruption.BuiltinRules(), w.policies.build) // the fake of an API server has a lock of its own, and w has none
	require.NoError(t, calls.Prime(t.Context()))
	_, err := calls.For(t.Context(), worker)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if _, err := calls.For(context.Background(), worker); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 50 {
		_, err := calls.Reconcile(t.Context(), policykindtest.Request("a"))
		require.NoError(t, err)
	}
	all.Wait()
}

// cached is a Reader that answers as fast as a cache does.
type cached struct {
	client.Client
	cluster *clusterv1.Cluster
}

func (c cached) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	*obj.(*clusterv1.Cluster) = *c.cluster
	return nil
}

func BenchmarkFor200Policies(b *testing.B) {
	var all []client.Object
	for i := range 200 {
		p := policy(fmt.Sprintf("p%03d", i), file(fmt.Sprintf("/etc/app%d", i), act(refitv1.NoDisruption)))
		p.Spec.Selector.Machines = metav1.LabelSelector{MatchLabels: map[string]string{"pool": fmt.Sprintf("p%d", i%100)}}
		all = append(all, p)
	}
	w := newWorld(b, all...)
	w.Client = cached{cluster: cluster("c1", map[string]string{"env": "prod"})}
	s := inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{"pool": "p7"}}
	require.Len(b, w.selected(s).Policies, 2)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.policies.For(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}
