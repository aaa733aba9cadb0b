package machineupdate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	refitworkload "github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/schedule"
)

// tally counts requests by what they are.
type tally map[string]int

func (c tally) all() (n int) {
	for _, one := range c {
		n += one
	}
	return n
}

func (c tally) String() string {
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		lines = append(lines, fmt.Sprintf("%d %s", c[what], what))
	}
	return strings.Join(lines, "\n")
}

// tallying is held while a tally is written, which several clients have: the recorder makes many requests at once.
var tallying sync.Mutex

// counting returns a client that counts what it asks an API server for; reads only if they are live.
func (w *world) counting(base client.WithWatch, c tally, live bool) client.WithWatch {
	count := func(verb string, obj any) {
		tallying.Lock()
		defer tallying.Unlock()
		c[verb+" "+strings.TrimPrefix(fmt.Sprintf("%T", obj), "*")]++
		w.clock.Step(time.Millisecond) // each takes some time
	}
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if live {
				count("get", obj)
			}
			return w.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if live {
				count("list", list)
			}
			return w.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			count("create", obj)
			return w.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			count("update", obj)
			return w.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			count("patch", obj)
			return w.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			count("delete", obj)
			return w.Delete(ctx, obj, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			count("update "+sub+" of", obj)
			return w.SubResource(sub).Update(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			count("patch "+sub+" of", obj)
			return w.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}

// withoutOperators has none of the operators that keep maintenances of nodes: their kinds are not served.
func withoutOperators(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if u, ok := list.(*unstructured.UnstructuredList); ok {
				return &meta.NoKindMatchError{GroupKind: u.GroupVersionKind().GroupKind()}
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// remembering are workload clusters whose client remembers what is not served, as that of a running refit does.
type remembering struct {
	Workloads
	client client.Client
}

func (r remembering) Get(ctx context.Context, cluster client.ObjectKey) (*refitworkload.Cluster, error) {
	c, err := r.Workloads.Get(ctx, cluster)
	if err == nil {
		c.Client = r.client
	}
	return c, err
}

// countsManagement has the requests to the management cluster be counted, and returns its clients.
func (w *world) countsManagement(c tally) (cached, live client.WithWatch) {
	base := w.Client.(client.WithWatch)
	cached, live = w.counting(base, c, false), w.counting(base, c, true)
	remembered := RememberCRDs(live, w.clock)
	w.store = &Store{Client: cached, Live: remembered, Clock: w.clock}
	w.reconciler.Client, w.reconciler.Live = cached, remembered
	return cached, live
}

// TestRequestsUntilAnUpdateWaits counts what an update costs the management cluster that policies hold back altogether, from when it is asked for; not
// the first one of its Cluster.
func TestRequestsUntilAnUpdateWaits(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile()
	w.change()
	w.eventsWith("")
	c := tally{}
	w.countsManagement(c)
	_, err := w.store.Update(t.Context(), key.Namespace, key.Name, w.digest())
	require.NoError(t, err)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "policy nightly: OutsideWindow")
	t.Logf("%d and %d events:\n%s", c.all(), len(w.events.Events), c)
	require.Less(t, c.all()+len(w.events.Events), 7) // one of them the definition of a kind, once a minute
	require.Equal(t, 1, c["update status of v1alpha1.MachineUpdate"])
}

// TestRequestsUntilAClusterWaits counts the same of 60 Machines of a Cluster that are asked for at once, as an edit of a class does.
func TestRequestsUntilAClusterWaits(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile() // the Cluster's first update
	keys := w.addMachines(60)
	c := tally{}
	w.countsManagement(c)
	r := NewRecorder(w.store)
	w.askEach(keys)
	w.one(r)
	for _, k := range keys {
		_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: k})
		require.NoError(t, err)
		var mu refitv1.MachineUpdate
		require.NoError(t, w.Get(t.Context(), k, &mu))
		require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
	}
	t.Logf("%d:\n%s", c.all(), c)
	require.LessOrEqual(t, c.all(), 3*len(keys))
	require.Equal(t, tally{
		"list unstructured.UnstructuredList": 2, "get v1.PartialObjectMetadata": 1, // Machines and KubeadmConfigs, and the definition of these
		"create v1alpha1.MachineUpdate": len(keys), "update status of v1alpha1.MachineUpdate": len(keys),
	}, c)
}

// TestRequestsUntilAClustersFirstWaits counts the same of the first update of a Cluster, beside which others are that are looked at in the same moment.
func TestRequestsUntilAClustersFirstWaits(t *testing.T) {
	w := under(t, restartA, holdsAll())
	c := tally{}
	w.countsManagement(c)
	w.eventsWith("")
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "policy nightly: OutsideWindow")
	require.Empty(t, w.events.Events)
	require.Zero(t, c["get v1alpha1.MachineUpdate"]+c["get unstructured.Unstructured"], c)
	require.Equal(t, 1, c["get v1beta2.Cluster"], c)
	require.Equal(t, 1, c["update status of v1alpha1.MachineUpdate"], c)
}

// TestRequestsForAnUpdate counts what an update costs the API servers that restarts a unit, the first one of its namespace and Cluster: figures of
// docs/scale.md. They may become less.
func TestRequestsForAnUpdate(t *testing.T) {
	w := newWorld(t)
	management, workload := tally{}, tally{}
	cached, live := w.countsManagement(management)
	w.reconciler.Slots.Client, w.reconciler.Slots.Live = cached, live
	w.reconciler.Gate = newGate(cached, w.policies, w.clock)
	w.workload.Client = w.counting(withoutOperators(w.workload.Client), workload, true)
	w.reconciler.Workloads = remembering{w.workload, refitworkload.RememberAbsent(w.workload.Client, w.clock)}
	w.node.plans, w.node.applied = []node.Plan{restartA, settled}, []node.Status{{State: node.Running, Step: "restart app.service", Done: 1, Total: 2}, succeeded}
	require.False(t, w.ask())
	w.reconcile()
	require.True(t, w.ask())
	told := 0
	for len(w.events.Events) > 0 {
		<-w.events.Events
		told++
	}
	t.Logf("management cluster, %d and %d events:\n%s\n\nworkload cluster, %d:\n%s", management.all(), told, management, workload.all(), workload)
	require.LessOrEqual(t, management.all()+told, 31)
	require.LessOrEqual(t, workload.all(), 15)
}

// TestRequestsUntilAnUpdateStarts counts what an update costs from when a policy lets it start until its node may be changed, where it changes a file and
// another one of its Cluster was before: figures of docs/scale.md. All that an edit of a policy lets go ask for that at once.
func TestRequestsUntilAnUpdateStarts(t *testing.T) {
	w := under(t, writeA, holdsAll())
	w.workload.Client = withoutOperators(w.workload.Client)
	management, workload := tally{}, tally{}
	of := w.addMachine("m2", "c1", "192.0.2.2")
	reconcile := func(k types.NamespacedName) {
		_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: k})
		require.NoError(t, err)
	}
	reconcile(key)
	reconcile(of)
	w.requireWaiting(refitv1.ReasonWindow, "policy nightly: OutsideWindow")

	policy := nightly()
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	policy.Spec.Strategy = schedule.PermissiveStrategy
	require.NoError(t, w.Update(t.Context(), policy))
	w.readPolicies()
	w.countsManagement(management)
	w.workload.Client = w.counting(w.workload.Client, workload, true)
	w.reconciler.Workloads = remembering{w.workload, refitworkload.RememberAbsent(w.workload.Client, w.clock)}
	reconcile(key) // the Cluster's first
	w.requirePhase(refitv1.PhaseSucceeded)
	clear(management)
	clear(workload)
	counted := ""
	w.reconciler.Dialer = &fakeNode{plans: []node.Plan{writeA, {}}, applied: []node.Status{succeeded}, before: func(verb string) {
		if verb == "apply" {
			counted = fmt.Sprintf("management cluster, %d:\n%s\n\nworkload cluster, %d:\n%s", management.all(), management, workload.all(), workload)
			require.LessOrEqual(t, management.all(), 15)
			require.LessOrEqual(t, workload.all(), 8)
		}
	}}
	reconcile(of)
	require.NotEmpty(t, counted)
	t.Log(counted)
}
