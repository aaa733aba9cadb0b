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

// Scope is which objects are meant: those of a Cluster, of a namespace if none is named, or all.
type Scope struct{ Namespace, Cluster string }

// object is a pointer to an object.
type object[T any] interface {
	*T
	client.Object
}

// clusterIndex is what an informer finds the objects of a Cluster by. The index of the field is for those who list.
const clusterIndex = "refit/" + Cluster

func byCluster(obj any) ([]string, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, nil
	}
	names := ByCluster(o)
	for i, name := range names {
		names[i] = clusterKey(o.GetNamespace(), name)
	}
	return names, nil
}

func clusterKey(namespace, name string) string { return namespace + "/" + name }

// Each calls visit with each object of a kind, until it returns an error. The list is for a memory that can't be looked into.
func Each[T any, P object[T]](ctx context.Context, m Memory, s Scope, list client.ObjectList, visit func(P) error) error {
	indexer, err := indexerOf[T, P](ctx, m)
	if err != nil {
		return err
	}
	if all, ok := s.in(indexer); ok {
		for _, obj := range all {
			if one, ok := obj.(P); ok {
				if err := visit(one); err != nil {
					return err
				}
			}
		}
		return nil
	}
	of := []client.ListOption{client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy}
	if s.Cluster != "" {
		of[0] = InCluster(s.Namespace, s.Cluster)
	}
	if err := m.Client.List(ctx, list, of...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(obj runtime.Object) error { return visit(obj.(P)) })
}

// in returns the objects that are meant, out of an indexer that finds them.
func (s Scope) in(indexer toolscache.Indexer) ([]any, bool) {
	switch {
	case indexer == nil:
		return nil, false
	case s == Scope{}:
		return indexer.List(), true
	}
	name, value := toolscache.NamespaceIndex, s.Namespace
	if s.Cluster != "" {
		name, value = clusterIndex, clusterKey(s.Namespace, s.Cluster)
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
