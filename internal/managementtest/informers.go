package managementtest

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Silent are informers of which nothing comes: a test tells of changes itself.
type Silent struct{ cache.Informer }

// GetInformer implements index.Informers.
func (s Silent) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return s, nil
}

// AddEventHandler implements cache.Informer.
func (Silent) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil //nolint:nilnil // there is nothing to register with
}
