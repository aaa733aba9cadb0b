package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// locker is a node lease. Whoever holds it goes after a number of tries.
type locker struct {
	holder string
	tries  int
	err    error
	asked  []string
	// marked is the Machine for which the Node is marked, and markErr the answer to whoever marks it, or takes that away.
	marked  types.UID
	markErr error
}

func (l *locker) Mark(_ context.Context, node string, machine types.UID) error {
	l.asked = append(l.asked, "mark "+node)
	if l.markErr == nil {
		l.marked = machine
	}
	return l.markErr
}

func (l *locker) ReleaseNode(_ context.Context, node string) error {
	l.asked = append(l.asked, "unmark "+node)
	if l.markErr == nil {
		l.marked = ""
	}
	return l.markErr
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

func (w *world) holder(l Nodes) *Holder {
	return &Holder{
		Client: w, Clock: w.clock, Out: &w.out, Admin: "alice",
		Nodes: func(_ context.Context, cluster types.NamespacedName) (Nodes, error) {
			require.Equal(w.t, "fleet/prod", cluster.String())
			if l == nil {
				return nil, errors.New("connection refused")
			}
			return l, nil
		},
	}
}

const (
	held      = "Machine fleet/a is held by alice: refit begins nothing new on it, and releases it after the step that is under way. " + capiWaits
	capiWaits = "Cluster API does not remediate it, and waits for the release if it is to be deleted."
	holdHook  = "pre-drain.delete.hook.machine.cluster.x-k8s.io/refit-hold"
)

// keptOff are the annotations that keep Cluster API off a held Machine.
func keptOff() map[string]string {
	return map[string]string{
		clusterv1.MachineSkipRemediationAnnotation: "refit", holdHook: "refit",
		protection.HoldAddedAnnotation: "uid-a:" + clusterv1.MachineSkipRemediationAnnotation + "," + holdHook,
	}
}

func TestHold(t *testing.T) {
	forever := HoldOptions{Reason: "disk swap", Timeout: 15 * time.Minute}
	for name, c := range map[string]struct {
		locker     *locker
		options    HoldOptions
		annotated  map[string]string
		says, want string
		// unmarked: nothing is put on the Node.
		unmarked bool
	}{
		"free": {
			locker: &locker{}, options: forever,
			want: lines(held, "Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
		"again, with an end": {
			locker: &locker{holder: "admin/alice"}, options: HoldOptions{Reason: "disk swap", Until: start.Add(time.Hour)},
			annotated: map[string]string{refitv1.HoldAnnotation: "true", lease.HoldByAnnotation: "alice"},
			want: lines("Machine fleet/a is held by alice until 2026-10-03T21:00:00Z: refit begins nothing new on it, and releases it after the step that is under way. "+capiWaits,
				"Node node-a is yours: its lease is held by admin/alice until 2026-10-03T21:00:00Z. Release it with: refit release -n fleet a"),
		},
		"refit is at work and releases it": {
			locker: &locker{holder: "refit/uid-a", tries: 3}, options: forever,
			want: lines(held, "Waiting for refit to release node node-a: Draining drain 3 pods left",
				"Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
		"refit is at work and does not release it": {
			locker: &locker{holder: "refit/uid-a"}, options: forever,
			want: lines(held, "Waiting for refit to release node node-a: Draining drain 3 pods left"),
			says: "refit has not released node node-a within 15m0s (Draining drain 3 pods left); refit and Cluster API stay off node node-a by the annotations of " +
				"its Machine, and whoever goes by the lease, or looks at the Node, may not: run the command again for these, or `refit release -n fleet a`",
		},
		"not waiting": {
			locker: &locker{holder: "refit/uid-a"}, options: HoldOptions{Reason: "disk swap"},
			want: lines(held, "refit is still at work on node node-a (Draining drain 3 pods left). Not waiting for it: the lease is not held."),
		},
		"medik8s has it": {
			locker: &locker{holder: "NodeHealthCheck-x"}, options: forever, want: lines(held),
			says:     "hold the lease of node node-a: the node is not yours: node lease held by NodeHealthCheck-x; refit and Cluster API stay off node node-a",
			unmarked: true,
		},
		"somebody was faster": {
			locker:  &locker{err: raced(t)},
			options: forever, want: lines(held, "Waiting for refit to release node node-a: Draining drain 3 pods left"),
			says: "refit has not released", unmarked: true,
		},
		"the end comes first": {
			locker: &locker{holder: "refit/uid-a"}, options: HoldOptions{Reason: "x", Until: start.Add(time.Minute), Timeout: time.Hour},
			want: lines("Machine fleet/a is held by alice until 2026-10-03T20:01:00Z: refit begins nothing new on it, and releases it after the step that is under way. "+capiWaits,
				"Waiting for refit to release node node-a: Draining drain 3 pods left"),
			says: "the hold is over before the node's lease could be had",
		},
		"no workload cluster": {options: forever, want: lines(held), says: "reach the workload cluster prod: connection refused; refit and Cluster API stay off node node-a"},
		"its API server":      {locker: &locker{err: errors.New("timeout")}, options: forever, want: lines(held), says: "hold the lease of node node-a: timeout; refit and Cluster API stay off", unmarked: true},
		"the Node can't be marked": {
			locker: &locker{markErr: errors.New("forbidden")}, options: forever, want: lines(held), unmarked: true,
			says: "forbidden; refit and Cluster API stay off node node-a",
		},
		"no reason":           {locker: &locker{}, says: "a hold needs a reason"},
		"an end that is over": {locker: &locker{}, options: HoldOptions{Reason: "x", Until: start}, says: "the hold would end at 2026-10-03T20:00:00Z, which is over"},
		"bob holds it": {
			locker: &locker{}, options: forever,
			annotated: map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:01Z", lease.HoldByAnnotation: "bob", lease.HoldReasonAnnotation: "fan"},
			says:      "the node is not yours: Machine fleet/a is held by bob (fan)",
		},
		"an annotation by hand": {
			locker: &locker{}, options: forever, annotated: map[string]string{refitv1.HoldAnnotation: "true"},
			says: "held by somebody who has set the annotation capi-refit.dev/hold",
		},
		"bob's hold is over": {
			locker: &locker{}, options: forever, annotated: map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:00Z", lease.HoldByAnnotation: "bob"},
			want: lines(held, "Node node-a is yours: its lease is held by admin/alice. Release it with: refit release -n fleet a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a", func(m *clusterv1.Machine) { m.Annotations = c.annotated }),
				update("a", refitv1.PhaseDraining, "", "", func(mu *refitv1.MachineUpdate) {
					mu.Status.Step, mu.Status.Drain = "drain", &refitv1.DrainStatus{PodsLeft: 3}
				}))
			var l Nodes
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
			want := keptOff()
			want[refitv1.HoldAnnotation], want[lease.HoldReasonAnnotation], want[lease.HoldByAnnotation] = value, c.options.Reason, "alice"
			require.Equal(t, want, w.machine().Annotations)
			if c.locker != nil {
				require.Equal(t, c.unmarked, c.locker.marked == "")
			}
		})
	}
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// raced is what a Locker says when somebody else was faster.
func raced(t *testing.T) error {
	t.Helper()
	w := newWorld(t)
	fresh := interceptor.NewClient(workloadtest.NewClient(w.clock, workloadtest.Node("node-a")), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if len(opts) > 0 { // the question for the time
				return c.Create(ctx, obj, opts...)
			}
			return apierrors.NewAlreadyExists(leases, "node-a")
		},
	})
	err := (&lease.Locker{Client: fresh, Clock: w.clock, Instance: "test"}).Hold(t.Context(), "node-a", "alice", "", 0)
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
	require.Contains(t, w.said(), "Waiting for refit to release node node-a: what it does can't be read: forbidden")

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
	require.ErrorContains(t, err, "held by alice (x)", "it is decided by what the Machine is by now")
	require.ErrorIs(t, err, ErrNotYours)
	changed := w.machine()
	changed.Labels["new"] = "one"
	stale := w.machine()
	require.NoError(t, w.Update(t.Context(), changed))
	require.NoError(t, w.holder(&locker{}).Hold(t.Context(), stale, HoldOptions{Reason: "z"}), "Machines change all the time")
	require.Equal(t, "one", w.machine().Labels["new"])
	w.fail = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return errors.New("forbidden")
		}
		return nil
	}
	err = w.holder(&locker{}).Release(t.Context(), w.machine(), false)
	require.EqualError(t, err, "write the annotations of Machine fleet/a: forbidden")
}

// TestHoldByTheLease takes the lease as medik8s knows it.
func TestHoldByTheLease(t *testing.T) {
	w := newWorld(t, machine("a"))
	nodes := workloadtest.NewClient(w.clock, workloadtest.Node("node-a"))
	h := w.holder(struct {
		*lease.Locker
		*protection.HeldNodes
	}{&lease.Locker{Client: nodes, Clock: w.clock, Instance: "refit-cli"}, &protection.HeldNodes{Client: nodes}})
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
