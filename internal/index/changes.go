package index

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/revision"
)

// Changes counts what changes in a manager's cache, so that what was found out of it need not be found out again. It may count a moment later than the cache
// has it: who looks takes the number first. The zero value is ready, and knows nothing.
type Changes struct {
	mu      sync.Mutex
	watches bool
	all     int64
	in      map[string]int64
}

// Watch has changes of some kinds count from now on. It is for the time before the manager starts.
func (c *Changes) Watch(ctx context.Context, informers Informers, kinds ...client.Object) error {
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(c)
		}
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches = true
	return nil
}

// In returns how often something has changed in a namespace, or, if that is empty, anywhere; false if that is not known.
func (c *Changes) In(namespace string) (int64, bool) {
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if namespace == "" {
		return c.all, c.watches
	}
	return c.in[namespace], c.watches
}

func (c *Changes) count(obj any) {
	name, err := toolscache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return // it has no name, and so nobody finds it in a cache
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == nil {
		c.in = map[string]int64{}
	}
	c.in[name.Namespace]++
	c.all++
}

// OnAdd implements toolscache.ResourceEventHandler.
func (c *Changes) OnAdd(obj any, _ bool) { c.count(obj) }

// OnUpdate implements toolscache.ResourceEventHandler. What comes again as it was is no change.
func (c *Changes) OnUpdate(was, is any) {
	before, ok := was.(client.Object)
	after, also := is.(client.Object)
	if ok && also && revision.Of(before) == revision.Of(after) {
		return
	}
	c.count(is)
}

// OnDelete implements toolscache.ResourceEventHandler.
func (c *Changes) OnDelete(obj any) { c.count(obj) }
