package policykind

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// counted is a client that counts lists.
type counted struct {
	client.WithWatch
	lists atomic.Int32
}

func (c *counted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	return c.WithWatch.List(ctx, list, opts...)
}

// TestManyChangesAreCountedOnce: a fleet that changes has each policy looked at once in a while, and one that does not has none.
func TestManyChangesAreCountedOnce(t *testing.T) {
	in := func(namespace, name string) *refitv1.KubernetesSource {
		s := &refitv1.KubernetesSource{}
		s.Namespace, s.Name = namespace, name
		return s
	}
	c := &counted{WithWatch: managementtest.New(in("fleet", "a"), in("fleet", "b"), in("other", "c"))}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	later := &Later{Client: c, List: &refitv1.KubernetesSourceList{}, After: 10 * time.Millisecond}
	h := later.Handler()
	machine := managementtest.Machine("fleet", "m", "c1", func(m *clusterv1.Machine) { m.ResourceVersion = "1" })
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: machine, ObjectNew: machine}, queue)
	_, due := later.due.Load("fleet")
	require.False(t, due, "it is the same")

	changed := machine.DeepCopy()
	changed.ResourceVersion = "2"
	for range 1000 {
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: machine, ObjectNew: changed}, queue)
	}
	require.Eventually(t, func() bool { return queue.Len() == 2 }, time.Minute, time.Millisecond)
	for range 2 {
		req, _ := queue.Get()
		require.Equal(t, "fleet", req.Namespace)
		queue.Done(req)
	}
	require.Less(t, c.lists.Load(), int32(100))

	h.Delete(t.Context(), event.DeleteEvent{Object: changed}, queue)
	require.Eventually(t, func() bool { return queue.Len() == 2 }, time.Minute, time.Millisecond, "it looks again after that")
}
