package machineupdate

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/loginprobe"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// TestATimerFindsThatANodeIsDarkAndThatItIsBack: over real SSH, by the time alone. No update, no comparison and no event tells anything.
func TestATimerFindsThatANodeIsDarkAndThatItIsBack(t *testing.T) {
	userKey, err := nodetest.NewKey()
	require.NoError(t, err)
	n, err := nodetest.Start(nodetest.Options{Name: "node", UserKey: userKey})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	w := newWorld(t)
	w.reachThrough(n, n, userKey)
	w.access(func(na *refitv1.NodeAccess) { na.Spec.SSH.JumpHost = nil })
	w.reconciler.Dialer = remote.SSHDialer{}
	prober := &loginprobe.Prober{Client: w, Clock: clock.RealClock{}, Nodes: w.reconciler, Interval: time.Second, Metrics: loginprobe.NewMetrics(prometheus.NewRegistry())}
	status := &loginprobe.Status{Client: w, Prober: prober, Recorder: events.NewFakeRecorder(100)}

	ctx, cancel := context.WithCancel(t.Context())
	var timer sync.WaitGroup
	timer.Go(func() { // comes back when it was told to, and at no other time
		for ctx.Err() == nil {
			res, err := prober.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			if ctx.Err() != nil {
				return
			}
			assert.NoError(t, err)
			assert.Positive(t, res.RequeueAfter)
			select {
			case <-time.After(res.RequeueAfter):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(timer.Wait)
	t.Cleanup(cancel)

	shows := func(what string, is func(*refitv1.NodeAccessStatus) bool) {
		t.Helper()
		access := client.ObjectKey{Namespace: key.Namespace, Name: "all"}
		require.Eventually(t, func() bool {
			_, err := status.Reconcile(ctx, ctrl.Request{NamespacedName: access})
			var na refitv1.NodeAccess
			return err == nil && w.Get(ctx, access, &na) == nil && is(&na.Status)
		}, time.Minute, 100*time.Millisecond, what)
	}
	reached := func(s *refitv1.NodeAccessStatus) bool {
		return s.Reachable != nil && *s.Reachable == 1 && len(s.Unreached) == 0
	}
	shows("that the node is reached", reached)
	n.Refuse(true)
	shows("that it is dark", func(s *refitv1.NodeAccessStatus) bool {
		return len(s.Unreached) == 1 && s.Unreached[0].Name == key.Name && s.Unreached[0].Reason == refitv1.ReasonUnreachable
	})
	n.Refuse(false)
	shows("that it is back", reached)
}
