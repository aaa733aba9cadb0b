package slots

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// mayBegin asks for a Machine that has a slot and whose node is as it was.
func (w *world) mayBegin(name string) string {
	w.Helper()
	return w.again(w.slots.MayBegin(context.Background(), get(w, name, &clusterv1.Machine{}), w))
}

// mayGoOn asks for a Machine that has a slot and whose node may be half changed.
func (w *world) mayGoOn(name string) string {
	w.Helper()
	return w.again(w.slots.MayGoOn(context.Background(), get(w, name, &clusterv1.Machine{}), w))
}

func (w *world) again(full *Full, err error) string {
	w.Helper()
	require.NoError(w, err)
	if full == nil {
		return ""
	}
	return full.Message
}

// TestWhoHasASlotMayDisturb asks once more when a slot is used: others may have become ill since it was taken.
func TestWhoHasASlotMayDisturb(t *testing.T) {
	const (
		quorum = "control plane: without node node-a etcd needs 2 healthy of 3 nodes to keep its quorum, and these are not: "
		one    = "workers: 1 of 3 nodes may be out at once (--max-unavailable-workers 1), and these are: "
	)
	cp := controlPlane
	for name, tc := range map[string]struct {
		self    *clusterv1.Machine
		objects []client.Object
		held    map[string]string
		want    string
	}{
		"a retry with two not ready": {
			self: cp("a"), objects: all(cp("b", notReady), cp("c", notReady)), want: quorum + "b (not ready), c (not ready)",
		},
		"a healthy control plane": {self: cp("a"), objects: all(cp("b"), cp("c"))},
		"a control plane that is out of etcd already": {
			self: cp("a", memberDown), objects: all(cp("b", notReady), cp("c")),
		},
		"a control plane that is not ready may be a member of etcd": {
			self: cp("a", notReady), objects: all(cp("b", notReady), cp("c")), want: quorum + "b (not ready)",
		},
		"a control plane of which somebody else takes another": {
			self: cp("a"), objects: all(cp("b"), cp("c")), held: map[string]string{"node-b": "x"}, want: quorum + "b (held by x)",
		},
		"of five another has a slot":           {self: cp("a"), objects: join(with(cp("b"), holds), all(cp("c"), cp("d"), cp("e")))},
		"a worker while another is not ready":  {self: worker("a"), objects: all(worker("b", notReady), worker("c")), want: one + "b (not ready)"},
		"two workers that have slots":          {self: worker("a"), objects: join(with(worker("b"), holds), all(worker("c")))},
		"a worker that is itself not ready":    {self: worker("a", notReady), objects: all(worker("b", notReady), worker("c"))},
		"a worker while somebody else has one": {self: worker("a"), objects: all(worker("b"), worker("c")), held: map[string]string{"node-b": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), join(with(tc.self, holds), tc.objects)...)
			w.held = tc.held
			require.Equal(t, tc.want, w.mayGoOn("a"))
		})
	}
}

// TestNoMoreNodesAreBegunWithThanMayBeOut has a worker become ill while as many have slots as may be out: one of those on whose nodes
// nothing was changed is too many, and only that one is told to give its node back.
func TestNoMoreNodesAreBegunWithThanMayBeOut(t *testing.T) {
	const (
		out = "workers: 2 of 5 nodes may be out at once (--max-unavailable-workers 2), and these are: "
		isA = out + "a (updating), ill (not ready)"
	)
	changed := func(mu *refitv1.MachineUpdate) { holds(mu); mu.Status.ApplyingSince = &metav1.Time{Time: start} }
	others := all(worker("c"), worker("d"), worker("ill", notReady))
	for name, tc := range map[string]struct {
		b    []client.Object
		held map[string]string
		// What a waits for that has a slot, and b.
		a, then string
	}{
		"the last of two":                      {b: with(worker("b"), holds), then: isA},
		"the one whose node is as it was":      {b: with(worker("b"), changed), a: out + "b (updating), ill (not ready)", then: isA},
		"beside one that has failed":           {b: with(worker("b"), holds, fails), a: out + "b (its update failed; refit retry or refit abandon b), ill (not ready)", then: isA},
		"beside one that somebody else is at":  {b: with(worker("b")), held: map[string]string{"node-b": "x"}, a: out + "b (held by x), ill (not ready)", then: isA},
		"of two none where one is broken, too": {b: with(worker("b", notReady), holds)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(2), join(with(worker("a"), holds), tc.b, others)...)
			w.held = tc.held
			require.Equal(t, tc.a, w.mayBegin("a"))
			require.Equal(t, tc.then, w.mayBegin("b"))
			require.Empty(t, w.mayGoOn("b"), "half changed, it waits for none that has a slot")
		})
	}
}

// TestANodeThatIsOutMayBeMended lets the update through that mends what is broken, to as many nodes at once as may be out.
func TestANodeThatIsOutMayBeMended(t *testing.T) {
	objects := func(healthy, broken int) (all []client.Object) {
		for i := range healthy {
			all = append(all, with(worker(fmt.Sprintf("ok-%d", i)))...)
		}
		for i := range broken {
			all = append(all, with(worker(fmt.Sprintf("broken-%d", i), notReady))...)
		}
		return all
	}
	t.Run("25 of 100 workers", func(t *testing.T) {
		w := newWorld(t, Limits{Workers: intstr.FromString("20%")}, objects(75, 25)...)
		for i := range 20 {
			require.Empty(t, w.take(fmt.Sprintf("broken-%d", i)))
		}
		require.Contains(t, w.take("broken-20"), "workers: 20 of 100 nodes may be out at once (--max-unavailable-workers 20%), and these are: broken-0 (updating)")
		require.Contains(t, w.take("ok-0"), "may be out at once", "one that works stays")
	})
	t.Run("2 of 2 workers", func(t *testing.T) {
		w := newWorld(t, Limits{}, objects(0, 2)...)
		require.Empty(t, w.take("broken-0"))
		require.Contains(t, w.take("broken-1"), "broken-0 (updating)")
	})
	t.Run("in a failure domain", func(t *testing.T) {
		east := inDomain("east")
		one := intstr.FromInt32(1)
		limits := Limits{Workers: intstr.FromInt32(5), FailureDomain: &one}
		w := newWorld(t, limits, join(with(worker("a", notReady, east)), with(worker("b", notReady, east)), with(worker("c", east)))...)
		require.Contains(t, w.take("c"), "in failure domain east")
		require.Empty(t, w.take("a"))
		require.Contains(t, w.take("b"), "in failure domain east")
	})
	t.Run("a control plane without its member of etcd", func(t *testing.T) {
		w := newWorld(t, Limits{}, join(with(controlPlane("a", memberDown)), with(controlPlane("b", notReady)), with(controlPlane("c")))...)
		require.Contains(t, w.take("b"), "keep its quorum", "its member may be one of the two that are left")
		require.Empty(t, w.take("a"))
	})
	t.Run("a new Machine is not one that is out", func(t *testing.T) {
		w := newWorld(t, atMost(1), join(with(worker("a", condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown), noNode)), with(worker("b", notReady)))...)
		require.Contains(t, w.take("a"), "may be out at once")
	})
}

// TestWhenInDoubtAMemberOfEtcdVotes has one of three control planes be down, so that etcd needs both others, as far as they vote.
func TestWhenInDoubtAMemberOfEtcdVotes(t *testing.T) {
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		failed           = controlplanev1.KubeadmControlPlaneMachinePodFailedReason
		provisioning     = controlplanev1.KubeadmControlPlaneMachinePodProvisioningReason
		missing          = controlplanev1.KubeadmControlPlaneMachinePodDoesNotExistReason
		notInspected     = controlplanev1.KubeadmControlPlaneMachinePodInspectionFailedReason
		disconnected     = controlplanev1.KubeadmControlPlaneMachinePodConnectionDownReason
		running          = controlplanev1.KubeadmControlPlaneMachinePodRunningReason
	)
	for name, tc := range map[string]struct {
		member, pod metav1.ConditionStatus
		podReason   string
		node        metav1.ConditionStatus
		down        bool
	}{
		"it is healthy":                          {yes, yes, running, yes, false},
		"an alarm, or a learner":                 {no, yes, running, yes, false},
		"an alarm by which the pod is not ready": {no, no, provisioning, yes, false},
		"an alarm, and no news of the node":      {no, unknown, notInspected, unknown, false},
		"an alarm, and the node is not ready":    {no, yes, running, no, false},
		"an alarm, and its pod was deleted":      {no, no, missing, yes, false},
		"its container has failed once":          {yes, no, failed, yes, false},
		"nobody could ask it":                    {unknown, no, failed, yes, false},
		"nobody could ask":                       {unknown, unknown, disconnected, unknown, false},
		"it is out, and its container fails":     {no, no, failed, yes, true},
		"and its node is not ready":              {no, no, failed, no, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := controlPlane("a", condition(etcdMember, tc.member), because(etcdPod, tc.pod, tc.podReason),
				condition(clusterv1.MachineNodeReadyCondition, tc.node))
			others := all(controlPlane("b", notReady), controlPlane("c"))
			w := newWorld(t, Limits{}, join(all(a), others)...)
			has := newWorld(t, Limits{}, join(with(a.DeepCopy(), holds), others)...)
			for what, why := range map[string]string{"take": w.take("a"), "begin": has.mayBegin("a"), "go on": has.mayGoOn("a")} {
				if tc.down {
					require.Empty(t, why, what)
				} else {
					require.Contains(t, why, "to keep its quorum, and these are not: b (not ready)", what)
				}
			}
		})
	}
}
