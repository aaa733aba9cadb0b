package index

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers are those of a manager's cache.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Each calls visit with all objects of a kind in a namespace that a cache has. They are the cache's own, and not to be changed: a list of tens of
// thousands would copy each, if only its outermost fields. It reports false, and has visited none, if the cache can't be looked into: one that is for
// some namespaces only can't.
func Each[T any, P interface {
	*T
	client.Object
}](ctx context.Context, informers Informers, namespace string, visit func(P)) (bool, error) {
	if informers == nil {
		return false, nil
	}
	informer, err := informers.GetInformer(ctx, P(new(T)))
	if err != nil {
		return false, fmt.Errorf("look into the cache of %T: %w", new(T), err)
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return false, nil
	}
	all, err := indexed.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return false, nil //nolint:nilerr // one without the index can be listed
	}
	for _, obj := range all {
		if one, ok := obj.(P); ok {
			visit(one)
		}
	}
	return true, nil
}
