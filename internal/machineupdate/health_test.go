package machineupdate

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/schedule"
)

// healthy is open while a Deployment has two ready replicas.
func healthy() *refitv1.ChangeManagementPolicy {
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "healthy", UID: "healthy"}}
	p.Spec.Strategy = schedule.PermissiveStrategy
	p.Spec.Gates = []refitv1.HealthGate{{Name: "shop", CEL: &refitv1.CELGate{
		Expression: "shop.status.?readyReplicas.orValue(0) >= 2",
		Objects:    []refitv1.GateObject{{Name: "shop", Cluster: refitv1.ManagementCluster, APIVersion: "apps/v1", Kind: "Deployment", ObjectName: "shop"}},
	}}}
	return p
}

// TestAnUpdateWaitsForAHealthGate asks for real. What holds the update back is told by its value, and once.
func TestAnUpdateWaitsForAHealthGate(t *testing.T) {
	w := under(t, restartA, healthy())
	w.node.plans = []node.Plan{restartA, restartA}
	shop := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "shop"}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
	require.NoError(t, w.Create(t.Context(), shop))
	asker := health.NewAsker(health.Sources{Management: w.Client}, w.clock, nil)
	changed := make(chan string, 10)
	asker.OnChange(func(namespace string) { changed <- namespace })
	w.reconciler.Gate.(*changemanagement.Gate).Health = asker
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.ReasonHealth, mu.Status.Reason)
	require.Equal(t, "False GateUnknown", permittedReason(mu))
	require.True(t, changemanagement.Holds(mu), "it counts as held back")

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = asker.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	require.Equal(t, key.Namespace, <-changed)
	w.reconcile()
	mu = w.update()
	require.Equal(t, "False GateFailed", permittedReason(mu))
	require.Contains(t, mu.Status.Message, "policy healthy: health gate shop does not hold since 2026-10-03T20:00:00Z: shop.status.?readyReplicas.orValue(0) >= 2 is false: shop.status.?readyReplicas.orValue(0) is 1")
	require.Contains(t, mu.Status.Message, "it takes: Restart app.service", "it was looked what it takes")
	looked := len(w.node.calls)
	for range 3 {
		w.reconcile()
	}
	require.Equal(t, mu.ResourceVersion, w.update().ResourceVersion, "the same answer is no news")
	require.Len(t, w.node.calls, looked, "and nobody connects for it")

	shop.Status.ReadyReplicas = 2
	require.NoError(t, w.Status().Update(t.Context(), shop))
	w.clock.Step(15 * time.Second)
	require.Equal(t, key.Namespace, <-changed)
	w.node.plans = []node.Plan{restartA, {}}
	w.reconcile()
	mu = w.update()
	require.Equal(t, "True Open", permittedReason(mu))
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
}

// TestAnotherAnswerWakesThoseThatWaitForHealth and nobody else.
func TestAnotherAnswerWakesThoseThatWaitForHealth(t *testing.T) {
	w := under(t, restartA, healthy())
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHealth, "has not been asked yet, and can't be here")
	queue := w.besideQueue()
	w.reconciler.wakeForHealth("other")
	w.reconciler.wakeForHealth(key.Namespace)
	takeNext(t, queue)

	w = under(t, restartA, nightly())
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "")
	waits := func(reason string) bool { return reason == refitv1.ReasonHealth }
	require.Empty(t, w.reconciler.thatWaitFor(t.Context(), waits))
	require.NotEmpty(t, w.reconciler.thatWaitFor(t.Context(), forPolicies))
}

// TestManyAnswersWakeOnce: 500 clusters may not answer, and each answer is another one. All updates of a namespace are gone through for each look.
func TestManyAnswersWakeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		r := &Reconciler{Sessions: NewSessions(1, 1), Client: interceptor.NewClient(managementtest.New(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				looks.Add(1)
				time.Sleep(time.Second) // a large namespace
				return nil
			},
		})}
		for range 500 {
			r.wakeForHealth(key.Namespace)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.LessOrEqual(t, int(looks.Load()), 2*len(healthAgain))
		require.NotZero(t, looks.Load())
		before := looks.Load()
		r.wakeForHealth(key.Namespace)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, before+int32(len(healthAgain)), looks.Load(), "and again later")
	})
}
