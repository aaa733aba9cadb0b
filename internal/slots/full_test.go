package slots

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	etcdMember = controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition
	etcdPod    = controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition
	apiServer  = controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition
	healthy    = clusterv1.MachineNodeHealthyCondition
)

var ill = condition(etcdMember, metav1.ConditionFalse)

// with is a Machine whose MachineUpdate is edited.
func with(m *clusterv1.Machine, edits ...editUpdate) []client.Object {
	return []client.Object{m, of(m, edits...)}
}

func join(parts ...[]client.Object) []client.Object {
	var out []client.Object
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// others are ready workers beside those that a case is about.
func others(n int) []client.Object { return pool(n) }

func TestWorkers(t *testing.T) {
	two := atMost(2)
	const start = "workers: 2 of 4 nodes may be out at once (--max-unavailable-workers 2), and these are: "
	for name, tc := range map[string]struct {
		limits  Limits
		objects []client.Object // besides worker a, which asks
		self    []editMachine
		held    map[string]string
		want    string
	}{
		"alone":                     {},
		"nobody is out":             {limits: two, objects: others(3)},
		"one of two is out":         {limits: two, objects: join(with(worker("b"), holds), others(2))},
		"two have a slot":           {limits: two, objects: join(with(worker("b"), holds), with(worker("c"), holds), others(1)), want: start + "b (updating), c (updating)"},
		"a failed one keeps its":    {limits: two, objects: join(with(worker("b"), holds, fails), with(worker("c"), holds), others(1)), want: start + "b (its update failed; refit retry or refit abandon b), c (updating)"},
		"failed, and asked again":   {limits: two, objects: join(with(worker("b"), holds, fails, func(mu *refitv1.MachineUpdate) { mu.Spec.Digest = "e" }), with(worker("c"), holds), others(1)), want: start + "b (updating), c (updating)"},
		"a failed one without":      {limits: two, objects: join(with(worker("b"), fails), with(worker("c"), holds), others(1))},
		"not ready, not known":      {limits: two, objects: join(all(worker("b", notReady), worker("c", without(clusterv1.MachineNodeReadyCondition))), others(1)), want: start + "b (not ready), c (not ready)"},
		"unknown is not ready":      {limits: two, objects: join(all(worker("b", condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown)), worker("c", notReady)), others(1)), want: start + "b (not ready), c (not ready)"},
		"deleted, without a node":   {limits: two, objects: join(all(worker("b", deleting), worker("c", noNode)), others(1)), want: start + "b (being deleted), c (no node yet)"},
		"under pressure, and ready": {limits: two, objects: join(all(worker("b", condition(healthy, metav1.ConditionFalse)), worker("c", notReady)), others(1))},
		"held by others":            {limits: two, objects: join(all(worker("b"), worker("c")), others(1)), held: map[string]string{"node-b": "NodeMaintenance nm-1", "node-c": "admin/bob"}, want: start + "b (held by NodeMaintenance nm-1), c (held by admin/bob)"},
		"two reasons count once":    {limits: two, objects: join(with(worker("b", notReady, deleting), holds), others(2)), held: map[string]string{"node-b": "node-maintenance"}},
		"not ready and held":        {limits: two, objects: join(all(worker("b", notReady), worker("c", deleting)), others(1)), held: map[string]string{"node-b": "x"}, want: start + "b (not ready), c (being deleted)"},
		"held and not ready":        {limits: two, objects: join(all(worker("b", notReady), worker("c")), others(1)), held: map[string]string{"node-b": "x", "node-c": "y"}, want: start + "b (held by x), c (held by y)"},
		"itself does not count":     {limits: two, objects: join(with(worker("b"), holds), others(2)), self: []editMachine{notReady}, held: map[string]string{"node-a": "x"}},
		"but it needs a slot":       {limits: two, objects: join(with(worker("b"), holds), with(worker("c"), holds), others(1)), self: []editMachine{notReady}, want: start + "b (updating), c (updating)"},
		"nor waits for failed ones": {limits: two, objects: join(with(worker("b"), holds, fails), with(worker("c", notReady), holds, fails), others(1)), self: []editMachine{notReady}},
		"but for who works there":   {limits: two, objects: join(with(worker("b"), holds, fails), with(worker("c"), holds, fails), others(1)), self: []editMachine{notReady}, held: map[string]string{"node-b": "x", "node-c": "y"}, want: start + "b (its update failed; refit retry or refit abandon b), c (its update failed; refit retry or refit abandon c)"},
		"nodes of nobody's":         {limits: two, objects: others(3), held: map[string]string{"other-1": "x", "other-2": "x", "": "x"}},
		"no node is nobody's":       {limits: atMost(3), objects: join(all(worker("b", noNode), worker("c", noNode)), others(1)), held: map[string]string{"": "x"}},
		"control planes are apart":  {limits: two, objects: join(with(controlPlane("b"), holds), with(controlPlane("c", notReady), holds), others(3))},
		"another cluster is apart":  {limits: two, objects: join(with(worker("b", elsewhere), holds), with(worker("c", elsewhere), holds), others(3))},
		"a percentage, rounded up":  {limits: Limits{Workers: intstr.FromString("20%")}, objects: join(with(worker("b"), holds), others(4))},
		"by default 20%": {
			objects: join(with(worker("b"), holds), others(3)),
			want:    "workers: 1 of 5 nodes may be out at once (--max-unavailable-workers 20%), and these are: b (updating)",
		},
		"more than are named": {
			limits: two, objects: pool(7, notReady),
			want: "workers: 2 of 8 nodes may be out at once (--max-unavailable-workers 2), and these are: " +
				"w00 (not ready), w01 (not ready), w02 (not ready), w03 (not ready), w04 (not ready), and others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.limits, join(all(worker("a", tc.self...)), tc.objects)...)
			w.held = tc.held
			require.Equal(t, tc.want, w.take("a"))
			require.Equal(t, tc.want == "", get(w, "a", &refitv1.MachineUpdate{}).Status.Slot != nil, "the slot is recorded if and only if it is given")
		})
	}
}

func TestFailureDomains(t *testing.T) {
	one := Limits{Workers: intstr.FromInt32(3), FailureDomain: ptr.To(intstr.FromInt32(1))}
	east, west := inDomain("east"), inDomain("west")
	elsewhere := func(m *clusterv1.Machine) { m.Status.FailureDomain = "west" }
	for name, tc := range map[string]struct {
		limits  Limits
		objects []client.Object // besides worker a, which asks
		self    editMachine
		want    string
	}{
		"one in another": {limits: one, self: east, objects: with(worker("b", west), holds)},
		"one in the same": {
			limits: one, self: east, objects: join(with(worker("b", east), holds), all(worker("c", west))),
			want: "workers: 1 of 2 nodes in failure domain east may be out at once (--max-unavailable-per-failure-domain 1), and these are: b (updating)",
		},
		"without the limit":                  {limits: atMost(3), self: east, objects: with(worker("b", east), holds)},
		"who is in none has no such limit":   {limits: one, self: inDomain(""), objects: with(worker("b", inDomain("")), holds)},
		"where it is, not where it belonged": {limits: one, self: east, objects: with(worker("b", east, elsewhere), holds)},
		"a control plane there":              {limits: one, self: east, objects: with(controlPlane("b", east), holds)},
		"of all too many": {
			limits: one, self: east, objects: join(with(worker("b", west), holds), all(worker("c", west, notReady), worker("d", inDomain(""), deleting))),
			want: "workers: 3 of 4 nodes may be out at once (--max-unavailable-workers 3), and these are: b (updating), c (not ready), d (being deleted)",
		},
		"a percentage of those there": {
			limits: Limits{intstr.FromString("100%"), ptr.To(intstr.FromString("50%"))}, self: east,
			objects: join(all(worker("b", east, notReady), worker("c", east), worker("d", west))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.limits, join(all(worker("a", tc.self)), tc.objects)...)
			require.Equal(t, tc.want, w.take("a"))
		})
	}
}

func TestControlPlane(t *testing.T) {
	cp := controlPlane
	const (
		quorum = "control plane: without node node-a etcd needs 2 healthy of 3 nodes to keep its quorum, and these are not: "
		two    = "control plane: the API server may be away while one of 2 nodes is updated, so the other must be healthy, which is not: "
	)
	for name, tc := range map[string]struct {
		objects []client.Object // besides control plane a, which asks
		self    []editMachine
		held    map[string]string
		want    string
	}{
		"one":              {},
		"one that is ill":  {self: []editMachine{ill, notReady}},
		"two":              {objects: all(cp("b"))},
		"two, one ill":     {objects: all(cp("b", ill)), want: two + "b (EtcdMemberHealthy is not True)"},
		"three":            {objects: all(cp("b"), cp("c"))},
		"three, it is ill": {objects: all(cp("b"), cp("c")), self: []editMachine{ill}},
		"three, one ill":   {objects: all(cp("b", ill), cp("c")), want: quorum + "b (EtcdMemberHealthy is not True)"},
		"three, two ill":   {objects: all(cp("c", noNode), cp("b", deleting)), want: quorum + "b (being deleted), c (no node yet)"},
		"not known":        {objects: all(cp("b", condition(apiServer, metav1.ConditionUnknown)), cp("c")), want: quorum + "b (APIServerPodHealthy is not True)"},
		"under pressure":   {objects: all(cp("b", condition(healthy, metav1.ConditionFalse)), cp("c")), want: quorum + "b (NodeHealthy is not True)"},
		"not ready":        {objects: all(cp("b", notReady), cp("c")), want: quorum + "b (not ready)"},
		"another control plane provider, or external etcd": {objects: all(cp("b", without(etcdMember), without(apiServer)), cp("c", without(etcdMember)))},
		"what says nothing about health":                   {objects: all(cp("b", condition("Available", metav1.ConditionFalse)), cp("c"))},
		"four":                                             {objects: all(cp("b"), cp("c"), cp("d"))},
		"four, one ill": {
			objects: all(cp("b"), cp("c"), cp("d", ill)),
			want:    "control plane: without node node-a etcd needs 3 healthy of 4 nodes to keep its quorum, and these are not: d (EtcdMemberHealthy is not True)",
		},
		"five, one ill": {objects: all(cp("b"), cp("c"), cp("d"), cp("e", ill))},
		"five, two ill": {
			objects: all(cp("b"), cp("c"), cp("d", notReady), cp("e", ill)),
			want:    "control plane: without node node-a etcd needs 3 healthy of 5 nodes to keep its quorum, and these are not: d (not ready), e (EtcdMemberHealthy is not True)",
		},
		"another is updated": {
			objects: join(with(cp("c"), holds), all(cp("b"))),
			want:    "control plane: node node-c is being updated (MachineUpdate c) and one may be out at a time",
		},
		"another has failed": {
			objects: join(with(cp("c"), holds, fails), all(cp("b", ill))),
			want:    "control plane: node node-c keeps its slot as its update failed (MachineUpdate c; refit retry or refit abandon c) and one may be out at a time",
		},
		"another is held": {
			objects: all(cp("b"), cp("c")), held: map[string]string{"node-b": "NodeMaintenance nm-1"},
			want: "control plane: node node-b is held by NodeMaintenance nm-1 and one may be out at a time",
		},
		"of five another is held": {
			objects: all(cp("b"), cp("c"), cp("d"), cp("e")), held: map[string]string{"node-e": "x", "node-d": "y"},
			want: "control plane: node node-d is held by y and one may be out at a time",
		},
		"one without a node has the slot": {
			objects: with(cp("b", noNode), holds),
			want:    "control plane: node b is being updated (MachineUpdate b) and one may be out at a time",
		},
		"workers are apart":        {objects: join(with(worker("b", notReady), holds), all(worker("c", deleting)))},
		"another cluster is apart": {objects: with(cp("b", elsewhere), holds)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), join(all(cp("a", tc.self...)), tc.objects)...)
			w.held = tc.held
			require.Equal(t, tc.want, w.take("a"))
			require.Equal(t, tc.want == "", get(w, "a", &refitv1.MachineUpdate{}).Status.Slot != nil)
		})
	}
}

// TestEachComponentCounts: of all that a KubeadmControlPlane says of the parts of a control plane.
func TestEachComponentCounts(t *testing.T) {
	for _, name := range []string{"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "EtcdPodHealthy", "EtcdMemberHealthy"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), all(controlPlane("a"), controlPlane("b", condition(name, metav1.ConditionFalse)), controlPlane("c"))...)
			require.Contains(t, w.take("a"), "these are not: b ("+name+" is not True)")
		})
	}
}

// Cluster API can't reach the workload cluster, and says of all Machines that it does not know.
func TestNodesThatNobodyCouldAskAreNotDown(t *testing.T) {
	unknown := because(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, clusterv1.MachineNodeConnectionDownReason)
	silent := because(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, clusterv1.MachineNodeReadyUnknownReason)
	w := newWorld(t, Limits{}, all(worker("a", unknown), worker("b", unknown), worker("c", silent))...)
	require.Contains(t, w.take("a"), "b (not ready), c (not ready)")
	require.Empty(t, w.take("c"), "Kubernetes itself has not heard of this one")
}
