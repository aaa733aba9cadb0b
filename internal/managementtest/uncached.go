package managementtest

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/index"
)

// LikeACache returns a client of a real API server that finds objects by what a manager's cache is indexed by, which the server does not know.
func LikeACache(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			if o.FieldSelector != nil {
				if name, ok := o.FieldSelector.RequiresExactMatch(index.Cluster); ok {
					o.FieldSelector, o.LabelSelector = nil, labels.SelectorFromSet(labels.Set{clusterv1.ClusterNameLabel: name})
				}
			}
			return c.List(ctx, list, &o)
		},
	})
}
