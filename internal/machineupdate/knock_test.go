package machineupdate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/schedule"
)

// knocker is a dialer that can knock, and counts both. Its node answers as it dials.
type knocker struct {
	countedDials
	w     *world
	knock int
	last  remote.Target
}

func (k *knocker) Knock(_ context.Context, t remote.Target) error {
	k.knock, k.last = k.knock+1, t
	return k.w.node.dialErr
}

// countedReads counts what is read of one object.
type countedReads struct {
	client.Reader
	n int
}

func (r *countedReads) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r.n++
	return r.Reader.Get(ctx, key, obj, opts...)
}

// dark returns a world whose node has not answered, and how long until it is tried again.
func dark(t *testing.T) (*world, *knocker, time.Duration) {
	w := newWorld(t)
	k := &knocker{countedDials: countedDials{Dialer: w.reconciler.Dialer}, w: w}
	w.reconciler.Dialer = k
	w.ask()
	w.node.dialErr = errRefused
	after := w.reconcile().RequeueAfter
	require.Equal(t, 1, k.n)
	return w, k, after
}

// TestADarkNodeIsKnockedAt without a request, as seldom as it would be looked at, and looked at now and then.
func TestADarkNodeIsKnockedAt(t *testing.T) {
	w, k, after := dark(t)
	w.requireWaiting(refitv1.ReasonUnreachable, "")
	began, looked := w.clock.Now(), k.n
	live := &countedReads{Reader: w.reconciler.Live}
	w.reconciler.Live = live
	for k.n == looked {
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
		require.Positive(t, after)
		require.LessOrEqual(t, after, retrySilent)
		if k.n == looked {
			require.Zero(t, live.n)
		}
	}
	require.GreaterOrEqual(t, w.clock.Since(began), knocksFor)
	require.Greater(t, k.knock, 5)
	require.Empty(t, k.last.PrivateKey)
	require.Empty(t, k.last.Signers)
	require.Nil(t, k.last.Certificates)
	w.requireWaiting(refitv1.ReasonUnreachable, "")
}

// TestANodeThatAnswersIsLookedAt at once.
func TestANodeThatAnswersIsLookedAt(t *testing.T) {
	w, k, after := dark(t)
	for range 3 {
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
	}
	require.Equal(t, 3, k.knock)
	w.node.dialErr = nil
	w.clock.Step(after)
	require.Equal(t, soon, w.reconcile().RequeueAfter)
	require.Equal(t, 1, k.n)
	w.reconcile()
	require.Equal(t, 2, k.n)
	require.NotEqual(t, refitv1.ReasonUnreachable, w.update().Status.Reason)
}

// TestWhatChangesHasADarkNodesUpdateLookedAt, whoever is woken by it or not, and whenever that is: also between a look and the first knock.
func TestWhatChangesHasADarkNodesUpdateLookedAt(t *testing.T) {
	machine := func(edit func(*clusterv1.Machine)) func(*world) {
		return func(w *world) {
			var m clusterv1.Machine
			require.NoError(w.t, w.Get(w.t.Context(), key, &m))
			edit(&m)
			require.NoError(w.t, w.Update(w.t.Context(), &m))
		}
	}
	for name, change := range map[string]func(*world){
		"another try": func(w *world) {
			mu := w.update()
			metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.RetryAnnotation, "1")
			require.NoError(w.t, w.Update(w.t.Context(), mu))
		},
		"another address": machine(func(m *clusterv1.Machine) { m.Status.Addresses[0].Address = "192.0.2.99" }),
		"its owner remediates the Machine": machine(func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
			})
		}),
		"another way to the node": func(w *world) {
			var all refitv1.NodeAccessList
			require.NoError(w.t, w.List(w.t.Context(), &all))
			all.Items[0].Spec.SSH.Port = 2222
			require.NoError(w.t, w.Update(w.t.Context(), &all.Items[0]))
		},
		"a policy that closes to all": func(w *world) {
			p := nightly()
			p.Spec.Hold = refitv1.HoldAll
			require.NoError(w.t, w.Create(w.t.Context(), p))
			w.readPolicies()
		},
		"a paused Cluster": func(w *world) {
			var c clusterv1.Cluster
			require.NoError(w.t, w.Get(w.t.Context(), ofC1, &c))
			c.Spec.Paused = ptr.To(true)
			require.NoError(w.t, w.Update(w.t.Context(), &c))
		},
	} {
		for _, knocks := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s after %d knocks", name, knocks), func(t *testing.T) {
				w, k, after := dark(t)
				for range knocks {
					w.clock.Step(after)
					after = w.reconcile().RequeueAfter
				}
				require.Equal(t, knocks, k.knock)
				live := &countedReads{Reader: w.reconciler.Live}
				w.reconciler.Live = live
				change(w)
				w.clock.Step(after + time.Second) // the queue is long: whoever is woken comes when it is time
				w.reconcile()
				require.Equal(t, knocks, k.knock)
				require.Positive(t, live.n)
			})
		}
	}
	t.Run("something else, before its time", func(t *testing.T) {
		w, k, after := dark(t)
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
		w.clock.Step(after - time.Second)
		w.reconcile()
		require.Equal(t, 2, k.n)
	})
}

// TestNobodyKnocksWhenAWindowHasEnded that was open to the look before, and says that its node does not answer.
func TestNobodyKnocksWhenAWindowHasEnded(t *testing.T) {
	w := newWorld(t)
	p := nightly()
	p.Spec.Hold = refitv1.HoldAll
	p.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY", StartTime: "19:00", Duration: "2h"}}}
	require.NoError(t, w.Create(t.Context(), p))
	w.readPolicies()
	k := &knocker{countedDials: countedDials{Dialer: w.reconciler.Dialer}, w: w}
	w.reconciler.Dialer = k
	w.clock.SetTime(time.Date(2026, 10, 3, 20, 59, 55, 0, time.UTC))
	w.ask()
	w.node.dialErr = errRefused
	after := w.reconcile().RequeueAfter
	w.requireWaiting(refitv1.ReasonUnreachable, "")
	w.clock.Step(after)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "")
	require.Zero(t, k.knock)
	require.Equal(t, 1, k.n)
}

// slowKnocker takes as long as a node that drops packets.
type slowKnocker struct{ *knocker }

func (k slowKnocker) Knock(ctx context.Context, t remote.Target) error {
	k.w.clock.Step(20 * time.Second)
	return k.knocker.Knock(ctx, t)
}

// TestADarkNodesUpdateIsLookedAtEveryTenMinutes, and no later than a knock takes that is under way then.
func TestADarkNodesUpdateIsLookedAtEveryTenMinutes(t *testing.T) {
	w, k, after := dark(t)
	w.reconciler.Dialer = slowKnocker{k}
	for range 3 {
		began, looks := w.clock.Now(), k.n
		for k.n == looks {
			w.clock.Step(after)
			after = w.reconcile().RequeueAfter
		}
		require.LessOrEqual(t, w.clock.Since(began), knocksFor+20*time.Second)
	}
}

// punisher has a server that turns away for a while who has come and gone without a login (PerSourcePenalties of OpenSSH). That it does is an answer, too.
type punisher struct {
	*knocker
	until time.Time
}

func (p *punisher) Knock(context.Context, remote.Target) error {
	p.until = p.w.clock.Now().Add(15 * time.Second)
	return nil
}

func (p *punisher) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	p.w.node.dialErr = nil
	if p.w.clock.Now().Before(p.until) {
		p.w.node.dialErr = errRefused
	}
	return p.knocker.Dial(ctx, t)
}

// TestAServerThatPunishesKnocksIsReached by the try after a knock and a look that was turned away, which does not knock, once it comes late enough.
func TestAServerThatPunishesKnocksIsReached(t *testing.T) {
	w, k, after := dark(t)
	w.reconciler.Dialer = &punisher{knocker: k}
	began := w.clock.Now()
	for w.update().Status.Reason == refitv1.ReasonUnreachable {
		require.Less(t, w.clock.Since(began), 5*time.Minute)
		w.clock.Step(after)
		after = w.reconcile().RequeueAfter
	}
}

// TestNoNodeBehindAJumpHostIsKnockedAt: that takes the jump host's credentials.
func TestNoNodeBehindAJumpHostIsKnockedAt(t *testing.T) {
	w, k, after := dark(t)
	for _, known := range w.reconciler.byUpdate() {
		known.Clear()
	}
	u := &update{Reconciler: w.reconciler, mu: w.update()}
	u.login.access = &nodeaccess.Access{Target: remote.Target{Jump: &remote.Target{}}}
	u.noteDark(&wait{reason: refitv1.ReasonUnreachable}, after)
	w.clock.Step(after)
	w.reconcile()
	require.Zero(t, k.knock)
}
