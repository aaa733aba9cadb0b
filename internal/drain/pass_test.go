package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

func TestUnreachableNode(t *testing.T) {
	w := newWorld(t)
	w.heard(corev1.ConditionUnknown)
	w.add(pod("a"), pod("b", deletedAt(start)), pod("c", deletedAt(start.Add(time.Minute))))
	w.clock.SetTime(start.Add(time.Second))
	p := w.pass()
	require.Equal(t, "3 pods left: 3 terminating (web/a, web/b, web/c)", p.Message)
	require.Equal(t, int64(1), *w.evictions.asked[0].DeleteOptions.GracePeriodSeconds)
	w.clock.SetTime(start.Add(2 * time.Second))
	require.Equal(t, "2 pods left: 2 terminating (web/a, web/c)", w.pass().Message, "b should be gone")
	w.clock.SetTime(start.Add(62 * time.Second))
	require.True(t, w.pass().Done)

	w.heard(corev1.ConditionTrue)
	require.Equal(t, 3, w.pass().Left, "a node that is heard of says itself what is gone")
}

func TestTimeout(t *testing.T) {
	const left = "2 pods left: 1 to be evicted (web/a), 1 terminating (web/b)"
	for name, tc := range map[string]struct {
		seconds *int32
		after   time.Duration
		over    bool
	}{
		"none":           {nil, 1000 * time.Hour, false},
		"zero is none":   {ptr.To[int32](0), 1000 * time.Hour, false},
		"not over":       {ptr.To[int32](600), 599 * time.Second, false},
		"over":           {ptr.To[int32](600), 600 * time.Second, true},
		"over for long":  {ptr.To[int32](600), 1000 * time.Hour, true},
		"negative, none": {ptr.To[int32](-1), time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.machine.Spec.Deletion.NodeDrainTimeoutSeconds = tc.seconds
			w.add(pod("a"), pod("b", deletedAt(start)))
			w.evictions.refuse["a"] = byBudget("The disruption budget front needs 2 healthy pods and has 2 currently")
			w.clock.SetTime(start.Add(tc.after))
			p := w.pass()
			require.Equal(t, tc.over, p.TimedOut)
			require.False(t, p.Done)
			require.Equal(t, 2, p.Left)
			require.Equal(t, []string{"pod web/a: its PodDisruptionBudget front allows no disruption now"}, p.Blocked)
			want := left + "; " + p.Blocked[0]
			if tc.over {
				want = "the Machine's nodeDrainTimeoutSeconds (600) are over, and no pod is forced to leave; " + want
			}
			require.Equal(t, want, p.Message)
		})
	}
}

// When the time is over nothing leaves any more: that would be for nothing.
func TestTimedOutEvictsNothing(t *testing.T) {
	w := newWorld(t)
	w.machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60)
	w.clock.SetTime(start.Add(time.Minute))
	w.add(pod("a"))
	p := w.pass()
	require.True(t, p.TimedOut)
	require.Contains(t, p.Message, "1 pod left: 1 to be evicted (web/a)")
	require.Equal(t, []string{metav1.DryRunAll}, w.evictions.asked[0].DeleteOptions.DryRun)

	w.gone("a")
	require.Equal(t, Progress{Done: true, Message: "the node is drained: it has no pods that are to leave"}, w.pass(), "what is drained is so, however late")
}

func TestNowhereToGo(t *testing.T) {
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	going := func(n *corev1.Node) {
		n.DeletionTimestamp, n.Finalizers = ptr.To(metav1.NewTime(start)), []string{"test/stay"}
	}
	unknown := func(n *corev1.Node) { n.Status.Conditions = nil }
	for name, tc := range map[string]struct {
		others []*corev1.Node
		want   others
	}{
		"no other node":             {nil, none},
		"another one":               {[]*corev1.Node{node("n1", corev1.ConditionTrue)}, some},
		"a cordoned one":            {[]*corev1.Node{node("n1", corev1.ConditionTrue, cordoned)}, notReady},
		"one that is not ready":     {[]*corev1.Node{node("n1", corev1.ConditionFalse)}, notReady},
		"one that is unreachable":   {[]*corev1.Node{node("n1", corev1.ConditionUnknown)}, notReady},
		"one that says nothing":     {[]*corev1.Node{node("n1", corev1.ConditionTrue, unknown)}, notReady},
		"one that is being deleted": {[]*corev1.Node{node("n1", corev1.ConditionTrue, going)}, notReady},
		"itself, uncordoned since":  {[]*corev1.Node{node("w1", corev1.ConditionTrue)}, none},
		"one of several": {
			[]*corev1.Node{node("n1", corev1.ConditionFalse), node("n2", corev1.ConditionTrue, cordoned), node("n3", corev1.ConditionTrue)}, some,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("a"))
			w.req.Self = types.NamespacedName{Namespace: "web", Name: "a"}
			w.intercept(interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				// The API server gives one at a time here.
				nodes, at := append([]*corev1.Node{w.node()}, tc.others...), 0
				if token := (&client.ListOptions{}).ApplyOptions(opts).Continue; token != "" {
					_, err := fmt.Sscan(token, &at)
					require.NoError(t, err)
				}
				list.(*corev1.NodeList).Items = []corev1.Node{*nodes[at]}
				if at++; at < len(nodes) {
					list.SetContinue(fmt.Sprint(at))
				}
				return nil
			}})
			p := w.pass()
			require.Empty(t, w.evictions.names())
			switch tc.want {
			case none:
				const why = "the node is not drained: its pods have nowhere to go, since the cluster has no other node"
				require.Equal(t, Progress{Done: true, Skipped: why, Message: why}, p)
			case notReady:
				require.Equal(t, Progress{Left: 1, Message: "1 pods left, which stay for now: no other node of the cluster is Ready and schedulable; to go on " +
					"without a drain: kubectl annotate machine -n " + w.machine.Namespace + " " + w.machine.Name + " machine.cluster.x-k8s.io/exclude-node-draining=true"}, p)
			case some:
				require.True(t, p.HandOver, "where nothing is evicted nobody hands over")
			}
		})
	}
}

// Where no node is Ready, the drain of one that is to be mended does not wait for the others, and none waits for ever.
func TestADrainWhereNoOtherNodeIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		self    corev1.ConditionStatus
		elapsed time.Duration
		evicts  string
		over    bool
	}{
		"the node is Ready":     {self: corev1.ConditionTrue},
		"nor is the node":       {self: corev1.ConditionFalse, evicts: "a"},
		"the drain's time ends": {self: corev1.ConditionTrue, elapsed: time.Hour, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			other := &corev1.Node{}
			require.NoError(t, w.client.Get(t.Context(), types.NamespacedName{Name: "w2"}, other))
			workloadtest.Ready(corev1.ConditionFalse)(other)
			require.NoError(t, w.client.Status().Update(t.Context(), other))
			w.heard(tc.self)
			w.machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60)
			w.add(pod("a"))
			w.clock.SetTime(start.Add(tc.elapsed))
			p := w.pass()
			require.Equal(t, tc.over, p.TimedOut)
			if !tc.over { // else a dry run tells what blocks
				require.Equal(t, tc.evicts, w.evictions.names())
			}
		})
	}
}

func TestExcludedMachine(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	w.machine.Annotations = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
	p := w.pass()
	require.True(t, p.Done)
	require.Equal(t, "the node is not drained: its Machine has the annotation machine.cluster.x-k8s.io/exclude-node-draining", p.Skipped)
	require.Equal(t, p.Skipped, p.Message)
	require.Empty(t, w.evictions.names())
}

func TestSelf(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"), pod("refit"), pod("z", labelled("wait-completed")))
	w.req.Self = types.NamespacedName{Namespace: "web", Name: "refit"}
	p := w.pass()
	require.True(t, p.HandOver)
	require.False(t, p.Done)
	require.Equal(t, 3, p.Left)
	require.Equal(t, []string{"pod web/refit: it is refit's own, and is evicted when another replica of refit leads"}, p.Blocked)
	require.Equal(t, "refit's own pod web/refit is on the node, so another replica of refit must lead before pods leave; "+
		"without one, run one on another node, or have the pod stay with the label cluster.x-k8s.io/drain=skip; "+
		"3 pods left: 2 to be evicted (web/a, web/refit), 1 to complete (web/z); "+p.Blocked[0], p.Message)
	require.Empty(t, w.evictions.names())
	require.Equal(t, p, w.pass())

	w.machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60)
	w.clock.SetTime(start.Add(time.Minute))
	p = w.pass()
	require.True(t, p.TimedOut)
	require.False(t, p.HandOver)
	require.Len(t, p.Blocked, 1)
	require.Equal(t, "a", w.evictions.names(), "refit's own pod is not even tried")
	w.machine.Spec.Deletion.NodeDrainTimeoutSeconds = nil

	w.req.Self.Name = "refit-of-another-node"
	p = w.pass()
	require.False(t, p.HandOver)
	require.Equal(t, "a refit", w.evictions.names(), "to another replica it is a pod as others are")
}

func TestSelfThatStays(t *testing.T) {
	w := newWorld(t)
	w.add(pod("refit", labelled("skip")))
	w.req.Self = types.NamespacedName{Namespace: "web", Name: "refit"}
	p := w.pass()
	require.True(t, p.Done)
	require.False(t, p.HandOver)
}

func TestPassNeedsACordon(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	w.edit(free.on)
	_, err := w.drainer.Pass(t.Context(), w.req)
	require.ErrorIs(t, err, ErrNotCordoned)
	require.Empty(t, w.evictions.names())

	_, err = w.drainer.Cordon(t.Context(), ref, owner)
	require.NoError(t, err)
	require.Equal(t, 1, w.pass().Left)
}

func TestPassNeedsToKnowWhat(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	for _, req := range []Request{{Node: ref, Since: start}, {Machine: w.machine, Node: ref}, {Machine: w.machine, Since: start}} {
		_, err := w.drainer.Pass(t.Context(), req)
		require.Error(t, err)
	}
	require.Empty(t, w.evictions.names())
}
