package index

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
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

func TestEachOfANamespace(t *testing.T) {
	indexer := func(by toolscache.Indexers) toolscache.Indexer {
		i := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, by)
		for _, namespace := range []string{"a", "b"} {
			mu := &refitv1.MachineUpdate{}
			mu.Namespace, mu.Name = namespace, "of-"+namespace
			require.NoError(t, i.Add(mu))
		}
		return i
	}
	byNamespace := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	down := errors.New("it is down")
	for name, tc := range map[string]struct {
		of    Informers
		looks bool
		err   error
	}{
		"a manager's cache":   {of: informers(func() (cache.Informer, error) { return open{indexer: indexer(byNamespace)}, nil }), looks: true},
		"one without indexes": {of: informers(func() (cache.Informer, error) { return open{indexer: indexer(nil)}, nil })},
		"one of namespaces":   {of: informers(func() (cache.Informer, error) { return closed{}, nil })},
		"no cache":            {},
		"one that is down":    {of: informers(func() (cache.Informer, error) { return nil, down }), err: down},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			looks, err := Each(t.Context(), tc.of, "b", func(mu *refitv1.MachineUpdate) { names = append(names, mu.Name) })
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.looks, looks)
			if tc.looks {
				require.Equal(t, []string{"of-b"}, names)
			} else {
				require.Empty(t, names)
			}
		})
	}
}
