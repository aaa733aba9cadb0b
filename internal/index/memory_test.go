package index

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// closed is an informer that can't be looked into, as that of a cache for some namespaces is.
type closed struct{ cache.Informer }

// open is one that can be.
type open struct {
	closed
	indexer toolscache.Indexer
}

func (o open) GetIndexer() toolscache.Indexer { return o.indexer }

type informers func() (cache.Informer, error)

func (f informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return f()
}

// machine is one of a Cluster.
func machine(namespace, name, cluster string) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	m.Namespace, m.Name, m.Spec.ClusterName = namespace, name, cluster
	return m
}

// memories returns a manager's cache that has Machines, and one each that can't be looked into.
func memories(t *testing.T, machines ...*clusterv1.Machine) map[string]Memory {
	scheme := runtime.NewScheme()
	require.NoError(t, clusterv1.AddToScheme(scheme))
	objects := fake.NewClientBuilder().WithScheme(scheme)
	for field, by := range Fields() {
		objects = objects.WithIndex(&clusterv1.Machine{}, field, by)
	}
	looked := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	require.NoError(t, looked.AddIndexers(inMemory()))
	bare := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
	for _, m := range machines {
		objects = objects.WithObjects(m.DeepCopy())
		require.NoError(t, errors.Join(looked.Add(m), bare.Add(m)))
	}
	of := func(i cache.Informer) Informers {
		return informers(func() (cache.Informer, error) { return i, nil })
	}
	c := objects.Build()
	return map[string]Memory{
		"a manager's cache":   {Client: down{}, Informers: of(open{indexer: looked})},
		"one without indexes": {Client: c, Informers: of(open{indexer: bare})},
		"one of namespaces":   {Client: c, Informers: of(closed{})},
		"no cache":            {Client: c},
	}
}

var errDown = errors.New("it is down")

// down is a client that is not to be asked.
type down struct{ client.Reader }

func (down) List(context.Context, client.ObjectList, ...client.ListOption) error { return errDown }

func TestEach(t *testing.T) {
	for name, m := range memories(t, machine("a", "one", "c1"), machine("b", "two", "c1"), machine("b", "three", "c2"), machine("b", "four", "c1")) {
		t.Run(name, func(t *testing.T) {
			for where, want := range map[Where][]string{
				{}:                   {"four", "one", "three", "two"},
				InNamespace("b"):     {"four", "three", "two"},
				InCluster("b", "c1"): {"four", "two"},
				InNamespace("c"):     nil,
				InCluster("a", "c2"): nil,
			} {
				var names []string
				require.NoError(t, Each(t.Context(), m, where, &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
					names = append(names, m.Name)
					return nil
				}))
				slices.Sort(names)
				require.Equal(t, want, names, "%+v", where)
			}
			visits := 0
			require.ErrorIs(t, Each(t.Context(), m, Where{}, &clusterv1.MachineList{}, func(*clusterv1.Machine) error {
				visits++
				return errDown
			}), errDown)
			require.Equal(t, 1, visits, "it ends at the first error")
		})
	}
}

func TestLookup(t *testing.T) {
	for name, m := range memories(t, machine("a", "one", "c1"), machine("b", "two", "c1")) {
		t.Run(name, func(t *testing.T) {
			find, err := Lookup[clusterv1.Machine](t.Context(), m)
			require.NoError(t, err)
			found, err := find(types.NamespacedName{Namespace: "b", Name: "two"})
			require.NoError(t, err)
			require.Equal(t, "two", found.Name)
			none, err := find(types.NamespacedName{Namespace: "a", Name: "two"})
			require.NoError(t, err)
			require.Nil(t, none)
		})
	}
}

func TestAMemoryThatIsDown(t *testing.T) {
	visit := func(*clusterv1.Machine) error { return nil }
	unsynced := Memory{Informers: informers(func() (cache.Informer, error) { return nil, errDown })}
	require.ErrorIs(t, Each(t.Context(), unsynced, Where{}, &clusterv1.MachineList{}, visit), errDown)
	_, err := Lookup[clusterv1.Machine](t.Context(), unsynced)
	require.ErrorIs(t, err, errDown)
	require.ErrorIs(t, Each(t.Context(), Memory{Client: down{}}, Where{}, &clusterv1.MachineList{}, visit), errDown)
}
