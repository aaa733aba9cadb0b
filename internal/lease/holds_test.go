package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var maintenanceKey = types.NamespacedName{Namespace: "kube-node-maintenance", Name: "w1"}

func setNode(w *world, change func(*corev1.Node)) {
	ctx, n := w.t.(*testing.T).Context(), testNode()
	require.NoError(w.t, w.Get(ctx, client.ObjectKeyFromObject(n), n))
	change(n)
	status := n.Status
	require.NoError(w.t, w.Update(ctx, n))
	n.Status = status
	require.NoError(w.t, w.Status().Update(ctx, n))
}

func annotateNode(value, reason string) func(*world) {
	return func(w *world) {
		setNode(w, func(n *corev1.Node) {
			n.Annotations = map[string]string{refitv1.HoldAnnotation: value}
			if reason != "" {
				n.Annotations[HoldReasonAnnotation] = reason
			}
		})
	}
}

// annotateMachine has the Machine be annotated by somebody, and the same again by another an hour later.
func annotateMachine(w *world) {
	w.machine.Annotations = map[string]string{refitv1.HoldAnnotation: "true"}
	hold := `{"f:metadata":{"f:annotations":{"f:capi-refit.dev/hold":{}}}}`
	for _, m := range []struct {
		manager, fields string
		at              time.Time
	}{
		{"capi", `{"f:metadata":{"f:annotations":{"f:capi-refit.dev/hold-reason":{}}}}`, start.Add(-2 * time.Hour)},
		{"somebody", hold, start}, {"kubectl-annotate", hold, start.Add(-time.Hour)},
	} {
		at, f := metav1.NewTime(m.at), &metav1.FieldsV1{}
		f.SetRawString(m.fields)
		w.machine.ManagedFields = append(w.machine.ManagedFields, metav1.ManagedFieldsEntry{Manager: m.manager, Time: &at, FieldsV1: f})
	}
}

func condition(kind string, status corev1.ConditionStatus) func(*world) {
	return func(w *world) {
		setNode(w, func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeConditionType(kind), Status: status, Message: "by the vendor", LastTransitionTime: metav1.NewTime(start),
			}}
		})
	}
}

func taint(key string) func(*world) {
	return func(w *world) {
		setNode(w, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: ptr.To(metav1.NewTime(start))}}
		})
	}
}

func kured(value string) func(*world) {
	return func(w *world) {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured"}}
		labels := map[string]string{"name": "kured"}
		ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		ds.Spec.Template.Labels = labels
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kured", Image: "kured"}}
		if value != "" {
			ds.Annotations = map[string]string{kuredAnnotation: value}
		}
		require.NoError(w.t, w.Create(w.t.(*testing.T).Context(), ds))
	}
}

func kuredLockOf(node string, age, ttl time.Duration) string {
	return fmt.Sprintf(`{"nodeID":%q,"metadata":{},"created":%q,"TTL":%d}`, node, start.Add(-age).Format(time.RFC3339), ttl)
}

func maintenance(holder string) func(*world) {
	return func(w *world) {
		w.edit(maintenanceKey, func(l *coordinationv1.Lease) {
			l.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NewMicroTime(start)),
			}
		})
	}
}

// holdCases are what does, and what does not, hold a node. kind is empty where it does not.
var holdCases = map[string]struct {
	given func(*world)
	kind  HoldKind
	text  string
}{
	"nothing": {func(*world) {}, "", ""},
	"a cluster without the maintenance operator": {func(w *world) { w.withoutMaintenances() }, "", ""},

	"a hold on the Node": {
		annotateNode("true", "disk swap"), Annotation,
		"node w1 held by the annotation capi-refit.dev/hold (disk swap); release it with: kubectl annotate node w1 capi-refit.dev/hold-",
	},
	"a hold on the Node with a reason as its value": {annotateNode("disk swap", ""), Annotation, "(disk swap); "},
	"a hold that says false is a hold": {
		annotateNode("false", ""), Annotation,
		`(false); the value "false" holds like any other that is no instant; release it with: kubectl annotate node w1 capi-refit.dev/hold-`,
	},
	"a hold without a value is a hold": {annotateNode("", ""), Annotation, "; release it with"},
	"a hold until an instant": {
		annotateNode("2026-10-03T21:00:00Z", "disk swap"), Annotation, "(disk swap); it ends at 2026-10-03T21:00:00Z; release it with",
	},
	"a hold until an instant that has come": {annotateNode("2026-10-03T20:00:00Z", ""), "", ""},
	"a hold on the Machine": {
		func(w *world) { w.machine.Annotations = map[string]string{refitv1.HoldAnnotation: "true"} }, Annotation,
		"machine m1 held by the annotation capi-refit.dev/hold; release it with: kubectl annotate machine -n lab m1 capi-refit.dev/hold-",
	},

	"a hold on the Machine of which it is known who put it there": {
		annotateMachine, Annotation, "machine m1 held by kubectl-annotate since 2026-10-03T19:00:00Z; release it with",
	},

	"a NodeMaintenance": {
		func(w *world) { require.NoError(w.t, w.Create(w.t.(*testing.T).Context(), nodeMaintenance("w1"))) }, NodeMaintenance,
		"node w1 held by NodeMaintenance nm-w1 since 2026-10-03T19:00:00Z (disk swap); ",
	},
	"a NodeMaintenance of another node": {
		func(w *world) { require.NoError(w.t, w.Create(w.t.(*testing.T).Context(), nodeMaintenance("w2"))) }, "", "",
	},

	"maintenance is planned":                 {condition("MaintenancePlanned", corev1.ConditionTrue), NodeCondition, "(by the vendor); "},
	"maintenance is in progress":             {condition("MaintenanceInProgress", corev1.ConditionTrue), NodeCondition, "condition MaintenanceInProgress"},
	"a drain is in progress":                 {condition("DrainInProgress", corev1.ConditionTrue), NodeCondition, "since 2026-10-03T20:00:00Z"},
	"whether maintenance goes on is unknown": {condition("MaintenanceInProgress", corev1.ConditionUnknown), NodeCondition, ""},
	"maintenance is over":                    {condition("MaintenanceInProgress", corev1.ConditionFalse), "", ""},
	"another condition":                      {condition("Ready", corev1.ConditionFalse), "", ""},

	"medik8s drains":                  {taint("medik8s.io/drain"), NodeTaint, "held by medik8s since 2026-10-03T20:00:00Z (taint medik8s.io/drain:NoSchedule); "},
	"medik8s remediates":              {taint("remediation.medik8s.io/fence-agents-remediation"), NodeTaint, "medik8s"},
	"the node is out of service":      {taint("node.kubernetes.io/out-of-service"), NodeTaint, "out of service"},
	"the autoscaler deletes":          {taint("ToBeDeletedByClusterAutoscaler"), NodeTaint, "cluster-autoscaler"},
	"Karpenter disrupts":              {taint("karpenter.sh/disrupted"), NodeTaint, "Karpenter"},
	"a control plane's taint":         {taint("node-role.kubernetes.io/control-plane"), "", ""},
	"a cordon's taint":                {taint("node.kubernetes.io/unschedulable"), "", ""},
	"a taint that looks like medik8s": {taint("notmedik8s.io/x"), "", ""},

	"kubeadm holds the maintenance lease": {maintenance("kubeadm"), KubeNodeMaintenance, "maintenance lease of node w1 held by kubeadm since"},
	"somebody holds the maintenance lease": {
		maintenance("x"), KubeNodeMaintenance, "it lapses when it has not been renewed for 1m6s while refit watches; release it with: kubectl delete lease -n kube-node-maintenance w1",
	},
	"nobody holds the maintenance lease": {maintenance(""), "", ""},

	"kured's lock is on this node":    {kured(kuredLockOf("w1", time.Minute, 0)), Kured, "held by kured since 2026-10-03T19:59:00Z"},
	"kured's lock is on another node": {kured(kuredLockOf("w2", time.Minute, 0)), "", ""},
	"kured's lock on this node is one of two": {
		kured(fmt.Sprintf(`{"maxOwners":2,"locks":[%s,%s]}`, kuredLockOf("w2", 0, 0), kuredLockOf("w1", 0, 0))), Kured, "kured",
	},
	"kured's lock has just expired on our clock": {kured(kuredLockOf("w1", time.Hour+time.Minute, time.Hour)), Kured, ""},
	"kured's lock has expired on all clocks":     {kured(kuredLockOf("w1", 2*time.Hour, time.Hour)), "", ""},
	"kured's lock can't be read":                 {kured("{"), Kured, "can't be read"},
	"kured has no lock":                          {kured(""), "", ""},

	"the Machine is paused": {
		func(w *world) { w.machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, Paused, "Machine m1 held by",
	},
	"the Cluster is paused": {func(w *world) { w.cluster.Spec.Paused = ptr.To(true) }, Paused, ""},
	"the Machine is being deleted": {
		func(w *world) { w.machine.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }, Deleting, "Machine m1 held by whoever deletes it since 2026-10-03T20:00:00Z",
	},
	"the Cluster is being deleted": {func(w *world) { w.cluster.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }, Deleting, "Cluster c1"},
	"the Node is being deleted": {
		func(w *world) {
			setNode(w, func(n *corev1.Node) { n.Finalizers = []string{"example.com/f"} })
			require.NoError(w.t, w.Delete(w.t.(*testing.T).Context(), testNode()))
		}, Deleting, "Node w1",
	},
}

func TestHolds(t *testing.T) {
	for name, test := range holdCases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.given(w)
			before := w.written
			h, err := w.locker.Acquire(t.Context(), w.req)
			if test.kind == "" {
				require.NoError(t, err)
				require.NoError(t, h.Check(t.Context()))
				return
			}
			var held *HeldError
			require.ErrorAs(t, err, &held)
			require.Len(t, held.Holds, 1, held.Message)
			require.Equal(t, test.kind, held.Holds[0].Kind)
			require.Contains(t, held.Message, test.text)
			require.NotEmpty(t, held.Holds[0].Release)
			require.Equal(t, before, w.written, "no lease is written")
		})
	}
}

func TestTheMaintenanceLeaseLapses(t *testing.T) {
	w := newWorld(t)
	maintenance("x")(w)
	w.waits(t.Context())
	w.clock.Step(66 * time.Second)
	w.acquire(t.Context())
}

func TestAllHoldsAreHeard(t *testing.T) {
	w := newWorld(t)
	condition("DrainInProgress", corev1.ConditionTrue)(w)
	w.cluster.Spec.Paused = ptr.To(true)
	w.foreign("node-maintenance", start, 3600)
	held := w.refused(t.Context())
	require.Len(t, held.Holds, 3)
	require.Equal(t, NodeLease, held.Holds[0].Kind)
	require.Contains(t, held.Message, "; and Machine m1 held by")
	again := w.refused(t.Context())
	require.Equal(t, held.RetryAfter, again.RetryAfter)
	retries := map[time.Duration]bool{}
	for range 20 {
		w.clock.Step(time.Second)
		retries[w.refused(t.Context()).RetryAfter] = true
	}
	require.Greater(t, len(retries), 15, "those who wait come at different times")
}

func TestAForeignCordonIsRemembered(t *testing.T) {
	w := newWorld(t)
	require.False(t, w.acquire(t.Context()).Cordoned())
	setNode(w, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	h := w.acquire(t.Context())
	require.True(t, h.Cordoned())
	require.Equal(t, w.nodeUID(), h.NodeUID())
}

func TestHoldsNeedFacts(t *testing.T) {
	w := newWorld(t)
	for _, facts := range []Facts{{}, {Machine: w.machine}, {Cluster: w.cluster}, {testMachine(""), w.cluster}} {
		_, err := w.locker.Holds(t.Context(), facts, "")
		require.Error(t, err)
	}
	require.Error(t, w.locker.Hold(t.Context(), "w1", "", "", 0))
	require.Error(t, w.locker.Hold(t.Context(), "w9", "ann", "", 0))
}
