//go:build e2e

package lease

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/apiserver"
)

// What only a real API server can show.

// unaided is a Locker with nothing between it and the API server.
func unaided(t *testing.T, clock clock.Clock) *Locker {
	t.Helper()
	c, err := client.New(live.server.Config, client.Options{})
	require.NoError(t, err)
	return &Locker{Client: c, Clock: clock, Observer: NewObserver(10), Instance: "refit-0"}
}

func TestRealClocks(t *testing.T) {
	w := newWorld(t)
	h, err := unaided(t, clock.RealClock{}).Acquire(t.Context(), w.req)
	require.NoError(t, err)
	require.True(t, valid(w.lease(), time.Now()))
	require.NoError(t, h.Renew(t.Context()))
	require.NoError(t, h.Release(t.Context()))
	require.False(t, valid(w.lease(), time.Now()))

	for _, skew := range []time.Duration{time.Minute, -time.Minute} {
		before := w.lease()
		_, err = unaided(t, skewed{clock.RealClock{}, skew}).Acquire(t.Context(), w.req)
		var wrong *ClockError
		require.ErrorAs(t, err, &wrong)
		require.InDelta(t, skew.Seconds(), wrong.Ahead.Seconds(), 20)
		require.Equal(t, before, w.lease())
	}
	var all coordinationv1.LeaseList
	require.NoError(t, live.client.List(t.Context(), &all, client.InNamespace(DefaultNamespace)))
	require.Len(t, all.Items, 1, "what asks for the time is not kept")
}

// skewed is a clock that is wrong.
type skewed struct {
	clock.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

func TestTheMaintenanceOperatorComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.withoutMaintenances()
	locker := unaided(t, clock.RealClock{})
	h, err := locker.Acquire(t.Context(), w.req)
	require.NoError(t, err)

	installMaintenances(t)
	nm := nodeMaintenance("w1")
	require.NoError(t, live.client.Create(t.Context(), nm))
	// Until discovery tells of the new type, nobody can know of it.
	var held *HeldError
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.ErrorAs(c, h.Check(t.Context()), &held) }, time.Minute, 100*time.Millisecond)
	require.Equal(t, NodeMaintenance, held.Holds[0].Kind)

	w.withoutMaintenances()
	require.NoError(t, h.Check(t.Context()), "also a client that has known the type")
}

func TestWhoHasAnnotatedTheNode(t *testing.T) {
	w, n := newWorld(t), testNode()
	// Of an object that was made without any fields the API server never notes who sets one.
	require.NoError(t, live.client.Delete(t.Context(), testNode()))
	n.Labels = map[string]string{"kubernetes.io/os": "linux"}
	require.NoError(t, live.client.Create(t.Context(), n))
	patch := []byte(`{"metadata":{"annotations":{"` + refitv1.HoldAnnotation + `":"disk swap"}}}`)
	require.NoError(t, live.client.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner("kubectl-annotate")))
	_, err := unaided(t, clock.RealClock{}).Acquire(t.Context(), w.req)
	var held *HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "kubectl-annotate", held.Holder)
	require.WithinDuration(t, time.Now(), held.Since, 5*time.Minute)
	require.Equal(t, "disk swap", held.Holds[0].Reason)
}

// TestTokensGrowWithoutTheLease shows that a lease that was deleted does not take its tokens along.
func TestTokensGrowWithoutTheLease(t *testing.T) {
	w := newWorld(t)
	last := int64(0)
	for range 5 {
		h := w.acquire(t.Context())
		require.Greater(t, h.Token(), last)
		last = h.Token()
		w.remove(nodeKey)
	}
}

// TestTheRightsAreEnough has refit's own account in the workload cluster do all that is done with leases there.
func TestTheRightsAreEnough(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	_, err := apiserver.Apply(ctx, live.client, filepath.Join("..", "..", "config", "workload"))
	require.NoError(t, err)
	kubeconfig, err := apiserver.AccountKubeconfig(ctx, live.server.Config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	l := &Locker{Client: c, Clock: clock.RealClock{}, Observer: NewObserver(10), Instance: "refit-0"}

	// The API server learns of rights a moment after they are granted.
	var h *Held
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		h, err = l.Acquire(ctx, w.req)
		assert.NoError(c, err)
	}, time.Minute, 100*time.Millisecond)
	require.NoError(t, h.Release(ctx))

	for _, maintenances := range []bool{true, false} {
		if !maintenances {
			w.withoutMaintenances()
		}
		h, err := l.Acquire(ctx, w.req)
		require.NoError(t, err)
		require.NoError(t, h.Renew(ctx))
		require.NoError(t, h.Release(ctx))
	}
	_, err = l.Acquire(ctx, w.req)
	require.NoError(t, err)
	swept, err := l.Sweep(ctx, func(types.UID) bool { return true })
	require.NoError(t, err)
	require.Equal(t, []string{"node-w1"}, swept.Released)

	l.Namespace = "locks"
	_, err = l.Acquire(ctx, w.req)
	require.True(t, apierrors.IsForbidden(err), err)
}
