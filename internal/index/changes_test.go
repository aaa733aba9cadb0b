package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// watched is an informer that has events come to who watches.
type watched struct {
	cache.Informer
	handlers []toolscache.ResourceEventHandler
}

func (w *watched) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	w.handlers = append(w.handlers, h)
	return nil, nil
}

func TestChanges(t *testing.T) {
	var none *Changes
	_, known := none.In("a")
	require.False(t, known)
	c := &Changes{}
	_, known = c.In("a")
	require.False(t, known, "nobody tells")
	w := &watched{}
	require.NoError(t, c.Watch(t.Context(), informers(func() (cache.Informer, error) { return w, nil }), &clusterv1.Machine{}))
	require.Len(t, w.handlers, 1)

	was, is := machine("a", "one", "c1"), machine("a", "one", "c1")
	was.ResourceVersion, is.ResourceVersion = "1", "2"
	for name, tc := range map[string]struct {
		event func(toolscache.ResourceEventHandler)
		more  int64
	}{
		"one more":                 {func(h toolscache.ResourceEventHandler) { h.OnAdd(is, false) }, 1},
		"one that changes":         {func(h toolscache.ResourceEventHandler) { h.OnUpdate(was, is) }, 1},
		"one that comes again":     {func(h toolscache.ResourceEventHandler) { h.OnUpdate(is, is) }, 0},
		"one that goes":            {func(h toolscache.ResourceEventHandler) { h.OnDelete(is) }, 1},
		"one that went unwatched":  {func(h toolscache.ResourceEventHandler) { h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/one"}) }, 1},
		"one of another namespace": {func(h toolscache.ResourceEventHandler) { h.OnAdd(machine("b", "one", "c1"), false) }, 0},
	} {
		before, known := c.In("a")
		require.True(t, known, name)
		tc.event(w.handlers[0])
		after, _ := c.In("a")
		require.Equal(t, tc.more, after-before, name)
	}
	all, _ := c.In("")
	require.EqualValues(t, 5, all)

	err := (&Changes{}).Watch(t.Context(), informers(func() (cache.Informer, error) { return nil, errDown }), &clusterv1.Machine{})
	require.ErrorIs(t, err, errDown)
}
