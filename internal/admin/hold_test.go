package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
)

// locker is a node lease. Whoever holds it goes after a number of tries.
type locker struct {
	holder string
	tries  int
	err    error
	asked  []string
}

func (l *locker) Hold(_ context.Context, node, admin, reason string, d time.Duration) error {
	l.asked = append(l.asked, fmt.Sprintf("hold %s for %s (%s) %s", node, admin, reason, d))
	return l.held(admin)
}

func (l *locker) held(admin string) error {
	if l.err != nil {
		return l.err
	}
	if l.holder == "" || l.holder == "admin/"+admin {
		l.holder = "admin/" + admin
		return nil
	}
	holder := l.holder
	if l.tries--; l.tries == 0 {
		l.holder = ""
	}
	return &lease.HeldError{Holder: holder, Message: "node lease held by " + holder}
}

func (l *locker) Unhold(_ context.Context, node, admin string) error {
	l.asked = append(l.asked, fmt.Sprintf("unhold %s for %s", node, admin))
	switch {
	case l.err != nil:
		return l.err
	case l.holder != "" && l.holder != "admin/"+admin:
		return &lease.HeldError{Holder: l.holder, Message: "node lease held by " + l.holder}
	}
	l.holder = ""
	return nil
}

func (w *world) holder(l NodeLocker) *Holder {
	return &Holder{
		Client: w, Clock: w.clock, Out: &w.out, Admin: "alice",
		Locker: func(_ context.Context, cluster types.NamespacedName) (NodeLocker, error) {
			require.Equal(w.t, "fleet/prod", cluster.String())
			if l == nil {
				return nil, errors.New("connection refused")
			}
			return l, nil
		},
	}
}

const held = "Machine fleet/a is held by alice: refit begins nothing new on it, and yields after the step that is under way."

func TestHold(t *testing.T) {
	forever := HoldOptions{Reason: "disk swap", Timeout: 15 * time.Minute}
	for name, c := range map[string]struct {
		locker     *locker
		options    HoldOptions
		annotated  map[string]string
		says, want string
	}{
		"free": {
			locker: &locker{}, options: forever,
			want: lines(held, "Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
		"again, with an end": {
			locker: &locker{holder: "admin/alice"}, options: HoldOptions{Reason: "disk swap", Until: start.Add(time.Hour)},
			annotated: map[string]string{refitv1.HoldAnnotation: "true", HoldByAnnotation: "alice"},
			want: lines("Machine fleet/a is held by alice until 2026-10-03T21:00:00Z: refit begins nothing new on it, and yields after the step that is under way.",
				"Node node-a is yours: its lease is held by admin/alice until 2026-10-03T21:00:00Z. Release it with: refit release -n fleet a"),
		},
		"refit is at work and yields": {
			locker: &locker{holder: "refit/uid-a", tries: 3}, options: forever,
			want: lines(held, "Waiting for refit to yield node node-a: Draining drain 3 pods left",
				"Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
		"refit is at work and does not yield": {
			locker: &locker{holder: "refit/uid-a"}, options: forever,
			want: lines(held, "Waiting for refit to yield node node-a: Draining drain 3 pods left"),
			says: "refit has not yielded node node-a within 15m0s (Draining drain 3 pods left); refit stays off node node-a by the annotation of its Machine, " +
				"and whoever goes by the lease does not: run the command again for the lease, or `refit release -n fleet a`",
		},
		"not waiting": {
			locker: &locker{holder: "refit/uid-a"}, options: HoldOptions{Reason: "disk swap"},
			want: lines(held, "refit is still at work on node node-a (Draining drain 3 pods left). Not waiting for it: the lease is not held."),
		},
		"medik8s has it": {
			locker: &locker{holder: "NodeHealthCheck-x"}, options: forever, want: lines(held),
			says: "hold the lease of node node-a: the node is not yours: node lease held by NodeHealthCheck-x; refit stays off node node-a",
		},
		"somebody was faster": {
			locker:  &locker{err: raced(t)},
			options: forever, want: lines(held, "Waiting for refit to yield node node-a: Draining drain 3 pods left"),
			says: "refit has not yielded",
		},
		"the end comes first": {
			locker: &locker{holder: "refit/uid-a"}, options: HoldOptions{Reason: "x", Until: start.Add(time.Minute), Timeout: time.Hour},
			want: lines("Machine fleet/a is held by alice until 2026-10-03T20:01:00Z: refit begins nothing new on it, and yields after the step that is under way.",
				"Waiting for refit to yield node node-a: Draining drain 3 pods left"),
			says: "the hold is over before the node's lease could be had",
		},
		"no workload cluster": {options: forever, want: lines(held), says: "reach the workload cluster prod: connection refused; refit stays off node node-a"},
		"its API server":      {locker: &locker{err: errors.New("timeout")}, options: forever, want: lines(held), says: "hold the lease of node node-a: timeout; refit stays off"},
		"no reason":           {locker: &locker{}, says: "a hold needs a reason"},
		"an end that is over": {locker: &locker{}, options: HoldOptions{Reason: "x", Until: start}, says: "the hold would end at 2026-10-03T20:00:00Z, which is over"},
		"bob holds it": {
			locker: &locker{}, options: forever,
			annotated: map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:01Z", HoldByAnnotation: "bob", holdReasonAnnotation: "fan"},
			says:      "the node is not yours: Machine fleet/a is held by bob (fan)",
		},
		"an annotation by hand": {
			locker: &locker{}, options: forever, annotated: map[string]string{refitv1.HoldAnnotation: "true"},
			says: "held by somebody who has set the annotation capi-refit.dev/hold",
		},
		"bob's hold is over": {
			locker: &locker{}, options: forever, annotated: map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:00Z", HoldByAnnotation: "bob"},
			want: lines(held, "Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a", func(m *clusterv1.Machine) { m.Annotations = c.annotated }),
				update("a", refitv1.PhaseDraining, "", "", func(mu *refitv1.MachineUpdate) {
					mu.Status.Step, mu.Status.Drain = "drain", &refitv1.DrainStatus{PodsLeft: 3}
				}))
			var l NodeLocker
			if c.locker != nil {
				l = c.locker
			}
			err := w.holder(l).Hold(t.Context(), w.machine(), c.options)
			require.Equal(t, c.want, w.said())
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
			} else {
				require.NoError(t, err)
			}
			if c.want == "" {
				require.Equal(t, c.annotated, w.machine().Annotations, "nothing is written")
				return
			}
			value := "true"
			if !c.options.Until.IsZero() {
				value = c.options.Until.Format(time.RFC3339)
			}
			require.Equal(t, map[string]string{
				refitv1.HoldAnnotation: value, holdReasonAnnotation: c.options.Reason, HoldByAnnotation: "alice",
			}, w.machine().Annotations)
		})
	}
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// raced is what a Locker says when somebody else was faster.
func raced(t *testing.T) error {
	t.Helper()
	fresh := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if len(opts) > 0 { // the question for the time
					obj.SetCreationTimestamp(metav1.NewTime(start))
					return nil
				}
				return apierrors.NewAlreadyExists(leases, "node-a")
			},
		}).Build()
	err := (&lease.Locker{Client: fresh, Clock: newWorld(t).clock, Instance: "test"}).Hold(t.Context(), "node-a", "alice", "", 0)
	require.Error(t, err)
	return err
}

func TestHoldWithoutNode(t *testing.T) {
	w := newWorld(t, machine("a", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }))
	require.NoError(t, w.holder(nil).Hold(t.Context(), w.machine(), HoldOptions{Reason: "x"}))
	require.Equal(t, lines(held, "It has no node yet, so that there is no lease to hold."), w.said())
	require.NoError(t, w.holder(nil).Release(t.Context(), w.machine(), false))
	require.Equal(t, lines("Machine fleet/a is released. An update that waits for it goes on within a minute."), w.said())
	require.Empty(t, w.machine().Annotations)
}

func TestHoldIsInterrupted(t *testing.T) {
	w := newWorld(t, machine("a"))
	h := w.holder(&locker{holder: "refit/uid-a"})
	h.Clock = w.clock.FakeClock // nobody moves it
	ctx, cancel := context.WithCancel(t.Context())
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*refitv1.MachineUpdate); ok {
			cancel()
			return errors.New("forbidden")
		}
		return nil
	}
	require.ErrorIs(t, h.Hold(ctx, w.machine(), HoldOptions{Reason: "x", Timeout: time.Hour}), context.Canceled)
	require.Contains(t, w.said(), "Waiting for refit to yield node node-a: what it does can't be read: forbidden")

	require.NoError(t, w.holder(&locker{holder: "refit/uid-a"}).Hold(t.Context(), w.machine(), HoldOptions{Reason: "x"}))
	w.fail = nil
	require.NoError(t, w.holder(&locker{holder: "refit/uid-a"}).Hold(t.Context(), w.machine(), HoldOptions{Reason: "x"}))
	require.Contains(t, w.said(), "refit is still at work on node node-a (its lease is still held)")
}

func TestHoldAtTheSameTime(t *testing.T) {
	w := newWorld(t, machine("a"))
	old := w.machine()
	require.NoError(t, w.holder(&locker{}).Hold(t.Context(), w.machine(), HoldOptions{Reason: "x"}))
	h := w.holder(&locker{})
	h.Admin = "bob"
	err := h.Hold(t.Context(), old, HoldOptions{Reason: "y"})
	require.ErrorContains(t, err, "somebody has written it at the same time")
	w.fail = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return errors.New("forbidden")
		}
		return nil
	}
	err = w.holder(&locker{}).Release(t.Context(), w.machine(), false)
	require.EqualError(t, err, "write the annotations of Machine fleet/a: forbidden")
}

func TestRelease(t *testing.T) {
	alices := map[string]string{refitv1.HoldAnnotation: "true", HoldByAnnotation: "alice", holdReasonAnnotation: "x", "other": "kept"}
	bobs := map[string]string{refitv1.HoldAnnotation: "true", HoldByAnnotation: "bob", "other": "kept"}
	const released = "Machine fleet/a is released. An update that waits for it goes on within a minute."
	for name, c := range map[string]struct {
		locker     *locker
		annotated  map[string]string
		force      bool
		says, want string
		left       string
	}{
		"one's own":                      {locker: &locker{holder: "admin/alice"}, annotated: alices, want: lines(released)},
		"nobody's":                       {locker: &locker{}, want: lines("Machine fleet/a has no hold.")},
		"bob's":                          {locker: &locker{holder: "admin/bob"}, annotated: bobs, says: "held by bob; --force releases it nevertheless", left: "admin/bob"},
		"bob's, by force":                {locker: &locker{holder: "admin/bob"}, annotated: bobs, force: true, want: lines("The lease of node node-a was held by admin/bob, and is released.", released)},
		"bob's lease":                    {locker: &locker{holder: "admin/bob"}, annotated: alices, says: "its lease is held by admin/bob; --force", left: "admin/bob"},
		"a lease of medik8s, even so":    {locker: &locker{holder: "node-maintenance"}, annotated: alices, force: true, want: lines("The lease of node node-a is held by node-maintenance, and stays so.", released), left: "node-maintenance"},
		"a lease of refit":               {locker: &locker{holder: "refit/uid-a"}, annotated: alices, want: lines("The lease of node node-a is held by refit/uid-a, and stays so.", released), left: "refit/uid-a"},
		"no workload cluster":            {annotated: alices, says: "reach the workload cluster prod: connection refused"},
		"its API server does not answer": {locker: &locker{err: errors.New("timeout")}, annotated: alices, says: "release the lease of node node-a: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a", func(m *clusterv1.Machine) { m.Annotations = c.annotated }))
			var l NodeLocker
			if c.locker != nil {
				l = c.locker
			}
			err := w.holder(l).Release(t.Context(), w.machine(), c.force)
			require.Equal(t, c.want, w.said())
			if c.locker != nil {
				require.Equal(t, c.left, c.locker.holder)
			}
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.Equal(t, c.annotated, w.machine().Annotations)
				return
			}
			require.NoError(t, err)
			require.NotContains(t, w.machine().Annotations, refitv1.HoldAnnotation)
			require.Equal(t, c.annotated["other"], w.machine().Annotations["other"])
		})
	}
}

// TestHoldByTheLease takes the lease as medik8s knows it.
func TestHoldByTheLease(t *testing.T) {
	w := newWorld(t, machine("a"))
	nodes := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "n"}}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if len(opts) > 0 {
					obj.SetCreationTimestamp(metav1.NewTime(start))
					return nil
				}
				return c.Create(ctx, obj, opts...)
			},
		}).Build()
	h := w.holder(&lease.Locker{Client: nodes, Clock: w.clock, Instance: "refit-cli"})
	require.NoError(t, h.Hold(t.Context(), w.machine(), HoldOptions{Reason: "disk swap", Until: start.Add(time.Hour)}))
	var l coordinationv1.Lease
	key := types.NamespacedName{Namespace: lease.DefaultNamespace, Name: lease.Name("node-a")}
	require.NoError(t, nodes.Get(t.Context(), key, &l))
	require.Equal(t, "admin/alice", *l.Spec.HolderIdentity)
	require.Equal(t, start.Add(time.Hour), l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second).UTC())
	require.NoError(t, h.Release(t.Context(), w.machine(), false))
	require.NoError(t, nodes.Get(t.Context(), key, &l))
	require.Empty(t, *l.Spec.HolderIdentity)
}
