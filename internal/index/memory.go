package index

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers are those of a manager's cache.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Memory is what a manager's cache has. What is read of it is the cache's own, and not to be changed: to list tens of thousands, or to get each of them,
// copies at least their outermost fields, every time that somebody counts.
type Memory struct {
	Client client.Reader
	// Informers are those of the cache that the client reads. Nil: the client is asked, and so it is where they can't be looked into: in a cache for some
	// namespaces only they can't.
	Informers Informers
}

// object is a pointer to an object.
type object[T any] interface {
	*T
	client.Object
}

// inMemory are the fields by which an informer's own memory is indexed. The cache's index is for those who list: it is the cache's own how that is named.
func inMemory() toolscache.Indexers {
	out := toolscache.Indexers{}
	for _, field := range []string{Cluster, Unsettled} {
		by := Fields()[field]
		out[indexName(field)] = func(obj any) ([]string, error) {
			o, ok := obj.(client.Object)
			if !ok {
				return nil, nil
			}
			values := by(o)
			for i, value := range values {
				values[i] = indexKey(o.GetNamespace(), value)
			}
			return values, nil
		}
	}
	return out
}

func indexName(field string) string { return "refit/" + field }

func indexKey(namespace, value string) string { return namespace + "/" + value }

// Each calls visit with each object of a kind, until it returns an error. The list is for a memory that can't be looked into.
func Each[T any, P object[T]](ctx context.Context, m Memory, where Where, list client.ObjectList, visit func(P) error) error {
	indexer, err := indexerOf[T, P](ctx, m)
	if err != nil {
		return err
	}
	if all, ok := where.in(indexer); ok {
		for _, obj := range all {
			if one, ok := obj.(P); ok {
				if err := visit(one); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := m.Client.List(ctx, list, where, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return meta.EachListItem(list, func(obj runtime.Object) error { return visit(obj.(P)) })
}

// in returns the objects that are meant, out of an indexer that finds them.
func (w Where) in(indexer toolscache.Indexer) ([]any, bool) {
	switch {
	case indexer == nil:
		return nil, false
	case w == Where{}:
		return indexer.List(), true
	}
	name, value := toolscache.NamespaceIndex, w.namespace
	if w.field != "" {
		name, value = indexName(w.field), indexKey(w.namespace, w.value)
	}
	all, err := indexer.ByIndex(name, value)
	return all, err == nil
}

// Lookup returns what finds objects of a kind by their names: nil if there is none.
func Lookup[T any, P object[T]](ctx context.Context, m Memory) (func(types.NamespacedName) (P, error), error) {
	indexer, err := indexerOf[T, P](ctx, m)
	if err != nil {
		return nil, err
	}
	return func(key types.NamespacedName) (P, error) {
		if indexer == nil {
			out := P(new(T))
			err := m.Client.Get(ctx, key, out, client.UnsafeDisableDeepCopy)
			if err != nil {
				out = nil
			}
			return out, client.IgnoreNotFound(err)
		}
		obj, _, err := indexer.GetByKey(toolscache.ObjectName(key).String())
		one, _ := obj.(P)
		return one, err
	}, nil
}

// indexerOf returns the memory of a kind, or nil if it can't be looked into.
func indexerOf[T any, P object[T]](ctx context.Context, m Memory) (toolscache.Indexer, error) {
	if m.Informers == nil {
		return nil, nil //nolint:nilnil // there need be none
	}
	informer, err := m.Informers.GetInformer(ctx, P(new(T)))
	if err != nil {
		return nil, fmt.Errorf("look into the cache of %T: %w", new(T), err)
	}
	if indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer }); ok {
		return indexed.GetIndexer(), nil
	}
	return nil, nil //nolint:nilnil // there need be none
}
