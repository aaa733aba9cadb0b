package slots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// nodeLease is held since an hour, renewed a while ago, for 600 s.
func nodeLease(node, holder string, renewed time.Duration, edits ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "medik8s-leases", Name: "node-" + node}}
	at := metav1.NewMicroTime(start.Add(-renewed))
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: ptr.To[int32](600)}
	for _, e := range edits {
		e(l)
	}
	return l
}

func noTimes(l *coordinationv1.Lease) { l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = nil, nil }

func maintenance(name string, spec any) *unstructured.Unstructured {
	nm := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	nm.SetAPIVersion("nodemaintenance.medik8s.io/v1beta1")
	nm.SetKind("NodeMaintenance")
	nm.SetName(name)
	return nm
}

var ofNodeA = map[string]any{"nodeName": "a"}

// workload returns a client of a workload cluster. failing are the kinds of lists that can't be had, and why.
func workload(failing map[string]error, objects ...client.Object) client.Reader {
	cluster := workloadtest.New(clocktesting.NewFakePassiveClock(start), objects...)
	return workloadtest.Before(cluster.Client, func(_ string, list runtime.Object) error {
		if _, ok := list.(*unstructured.UnstructuredList); ok {
			return failing["NodeMaintenanceList"]
		}
		return failing["LeaseList"]
	})
}

func TestWorkloadPeers(t *testing.T) {
	const lapses = 660*time.Second + lease.Tolerance
	for name, tc := range map[string]struct {
		objects   []client.Object
		namespace string
		want      map[string]string
	}{
		"nobody":                    {},
		"a lease":                   {objects: []client.Object{nodeLease("a", "node-maintenance", 0)}, want: map[string]string{"a": "node-maintenance"}},
		"a lease that nobody holds": {objects: []client.Object{nodeLease("a", "", 0), nodeLease("b", "", 0, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })}},
		"our own":                   {objects: []client.Object{nodeLease("a", "refit/uid", 0)}},
		"on the verge":              {objects: []client.Object{nodeLease("a", "x", lapses)}, want: map[string]string{"a": "x"}},
		"lapsed":                    {objects: []client.Object{nodeLease("a", "x", lapses+time.Second)}},
		"from a clock ahead":        {objects: []client.Object{nodeLease("a", "x", -24*time.Hour)}, want: map[string]string{"a": "x"}},
		"people's do not lapse":     {objects: []client.Object{nodeLease("a", "admin/bob", 9999*time.Hour), nodeLease("b", "kubeadmin-bob", 9999*time.Hour)}, want: map[string]string{"a": "admin/bob", "b": "kubeadmin-bob"}},
		"nor what has no times":     {objects: []client.Object{nodeLease("a", "x", 0, noTimes)}, want: map[string]string{"a": "x"}},
		"what is no node's lease":   {objects: []client.Object{nodeLease("a", "x", 0, func(l *coordinationv1.Lease) { l.Name = "leader" }), nodeLease("", "x", 0)}},
		"elsewhere":                 {objects: []client.Object{nodeLease("a", "x", 0, func(l *coordinationv1.Lease) { l.Namespace = "kube-node-lease" })}},
		"another namespace":         {objects: []client.Object{nodeLease("a", "x", 0), nodeLease("b", "y", 0, func(l *coordinationv1.Lease) { l.Namespace = "locks" })}, namespace: "locks", want: map[string]string{"b": "y"}},
		"a NodeMaintenance":         {objects: []client.Object{maintenance("nm-1", ofNodeA)}, want: map[string]string{"a": "NodeMaintenance nm-1"}},
		"its lease has lapsed":      {objects: []client.Object{nodeLease("a", "node-maintenance", 9999*time.Hour), maintenance("nm-1", ofNodeA)}, want: map[string]string{"a": "NodeMaintenance nm-1"}},
		"it is named, not its lease": {
			objects: []client.Object{nodeLease("a", "node-maintenance", 0), nodeLease("b", "x", 0), maintenance("nm-2", ofNodeA), maintenance("nm-1", ofNodeA)},
			want:    map[string]string{"a": "NodeMaintenance nm-1", "b": "x"},
		},
		"one for no node": {objects: []client.Object{maintenance("nm-1", map[string]any{})}},
	} {
		t.Run(name, func(t *testing.T) {
			p := WorkloadPeers{Client: workload(nil, tc.objects...), LeaseNamespace: tc.namespace, Clock: clocktesting.NewFakePassiveClock(start)}
			got, err := p.Taken(t.Context())
			require.NoError(t, err)
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestWorkloadPeersThatCannotBeTold(t *testing.T) {
	for name, tc := range map[string]struct {
		failing map[string]error
		objects []client.Object
		want    string
	}{
		"leases":                      {failing: map[string]error{"LeaseList": errDown}, want: "list Leases in medik8s-leases: it is down"},
		"maintenances":                {failing: map[string]error{"NodeMaintenanceList": errDown}, want: "list NodeMaintenances: it is down"},
		"the node of a maintenance":   {objects: []client.Object{maintenance("nm-1", map[string]any{"nodeName": map[string]any{}})}, want: "read NodeMaintenance nm-1: "},
		"without the operator it may": {failing: map[string]error{"NodeMaintenanceList": &meta.NoKindMatchError{}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := WorkloadPeers{Client: workload(tc.failing, append(tc.objects, nodeLease("a", "x", 0))...), Clock: clocktesting.NewFakePassiveClock(start)}
			got, err := p.Taken(t.Context())
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				require.Nil(t, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{"a": "x"}, got)
		})
	}
}
