package machineupdate

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// The versions before and after the one that the world's machine is brought from, which runs v1.35.9, and to.
const older, newer = "v1.35.9", "v1.36.0"

// server is a control-plane machine beside the world's.
type server struct {
	name, spec, kubelet, image string
	marked                     bool // Cluster API has it updated
	failed                     bool // and the update of refit's has failed
}

// serves adds control-plane machines, all of them healthy.
func (w *world) serves(servers ...server) {
	for _, s := range servers {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: s.name, UID: types.UID("uid-of-" + s.name)}}
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.Spec.ClusterName, m.Spec.Version = "c1", s.spec
		if s.marked {
			m.Annotations = marks()
		}
		if s.kubelet != "" {
			m.Status.NodeRef.Name = "node-" + s.name
			n := workloadtest.Node(m.Status.NodeRef.Name)
			n.Status.NodeInfo.KubeletVersion = s.kubelet
			require.NoError(w.t, w.workload.Client.Create(w.t.Context(), n))
		}
		for _, c := range []string{clusterv1.MachineNodeReadyCondition, clusterv1.MachineNodeHealthyCondition} {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Test"})
		}
		require.NoError(w.t, w.Create(w.t.Context(), m))
		if s.image != "" {
			w.runsAPIServer(m.Status.NodeRef.Name, s.image)
		}
		if s.failed {
			mu := &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels}}
			mu.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))}
			require.NoError(w.t, w.Create(w.t.Context(), mu))
		}
	}
}

// runsAPIServer adds the mirror of a static pod.
func (w *world) runsAPIServer(on, image string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: kubeAPIServer + "-" + on, Labels: map[string]string{"component": kubeAPIServer},
	}}
	p.Spec.NodeName, p.Spec.Containers = on, []corev1.Container{{Name: kubeAPIServer, Image: image}}
	require.NoError(w.t, w.workload.Client.Create(w.t.Context(), p))
}

// elsewhere has the API servers be no machines, and be of the versions given by their addresses. Those without a version don't answer.
func elsewhere(versions map[string]string) func(*world) {
	return func(w *world) {
		port := int32(443)
		list := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		}, Ports: []discoveryv1.EndpointPort{{Port: &port}}}
		for address := range versions {
			list.Endpoints = append(list.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		require.NoError(w.t, w.workload.Client.Create(w.t.Context(), list))
		w.workload.Ask = func(_ context.Context, address string) (string, error) {
			if v := versions[strings.TrimSuffix(address, ":443")]; v != "" {
				return v, nil
			}
			return "", errRefused
		}
	}
}

func (w *world) runsKubeProxy(image string) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeProxy}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: kubeProxy, Image: image}}
	require.NoError(w.t, w.workload.Client.Create(w.t.Context(), set))
}

func image(tag string) string { return "registry.k8s.io/kube-apiserver:" + tag }

func TestAVersionWaitsForTheRestOfItsCluster(t *testing.T) {
	one, two := server{"cp-1", newer, newer, image(newer), false, false}, server{"cp-2", newer, newer, image(newer), false, false}
	for name, tc := range map[string]struct {
		servers      []server
		controlPlane bool   // the world's machine is one
		proxy        string // the image of kube-proxy
		more         func(w *world)
		want         string // a part of the message; empty: nothing is in the way
	}{
		"a worker whose control plane is through":       {servers: []server{one, two}, proxy: image(newer)},
		"a worker before one API server, by its pod":    {servers: []server{one, two, {"cp-3", newer, newer, image(older), false, false}}, want: "newer than the API server of Machine cp-3 (by the image of its pod), which runs v1.35.9; have the control plane updated first"},
		"before one whose kubelet is to come":           {servers: []server{one, {"cp-3", newer, older, image(newer), true, false}}, want: "cp-3 (by the kubelet beside it), which runs v1.35.9"},
		"before one that no pod tells of":               {servers: []server{one, {"cp-3", newer, older, "", true, false}}, want: "cp-3 (by the kubelet beside it)"},
		"before one that the template has not reached":  {servers: []server{one, {"cp-3", older, older, "", false, false}}, want: "Machine cp-3"},
		"before one whose update has failed":            {servers: []server{one, {"cp-3", newer, older, image(newer), false, true}}, want: "Machine cp-3"},
		"before one of no Machine":                      {servers: []server{one}, more: func(w *world) { w.runsAPIServer("by-hand", image(older)) }, want: "newer than the API server of Node by-hand"},
		"before one of which nothing is known":          {servers: []server{{"cp-3", newer, "", "", true, false}}, want: "nothing tells which version the API server of Machine cp-3 runs"},
		"beside one that is made":                       {servers: []server{one, {"cp-3", newer, "", "", false, false}}},
		"an image without a version":                    {servers: []server{{"cp-1", newer, newer, "registry.k8s.io/kube-apiserver@sha256:01", false, false}}, want: "the version of the API server of Node node-cp-1 can't be told"},
		"before one that answers otherwise":             {servers: []server{one, two}, more: elsewhere(map[string]string{"192.0.2.1": newer, "192.0.2.2": older, "192.0.2.3": ""}), want: "newer than the API server at 192.0.2.2:443"},
		"where nobody reaches them one by one":          {servers: []server{one, two}, more: elsewhere(map[string]string{"192.0.2.1": "", "192.0.2.2": ""})},
		"a kube-proxy without a version":                {servers: []server{one}, proxy: "kube-proxy:latest", want: "the version of kube-proxy can't be told"},
		"a kube-proxy that is ahead":                    {servers: []server{one}, proxy: image("v1.37.0"), want: "DaemonSet kube-system/kube-proxy runs v1.37.0 and is newer than"},
		"a kube-proxy that is behind":                   {servers: []server{one}, proxy: image("v1.33.0")},
		"a control plane elsewhere":                     {},
		"a control plane elsewhere, of one version":     {more: elsewhere(map[string]string{"192.0.2.1": newer, "192.0.2.2": newer})},
		"a control plane elsewhere, half way":           {more: elsewhere(map[string]string{"192.0.2.1": newer, "192.0.2.2": older}), want: "newer than the API server at 192.0.2.2:443"},
		"a control plane elsewhere that nobody reaches": {more: elsewhere(map[string]string{"192.0.2.1": "", "192.0.2.2": ""})},
		"a control plane elsewhere, part of it":         {more: elsewhere(map[string]string{"192.0.2.1": "", "192.0.2.2": older}), want: "newer than the API server at 192.0.2.2:443"},
		"a control plane elsewhere of no known version": {more: elsewhere(map[string]string{"192.0.2.1": "master"}), want: "the version of the API server at 192.0.2.1:443"},
		"the first of a control plane":                  {controlPlane: true, servers: []server{{"cp-1", older, older, image(older), false, false}}, proxy: image(older)},
		"the last of a control plane":                   {controlPlane: true, servers: []server{one, two}, proxy: image(older)},
		"a control plane that leaves a worker behind": {controlPlane: true, servers: []server{one}, more: func(w *world) {
			n := workloadtest.Node("n3")
			n.Status.NodeInfo.KubeletVersion = "v1.32.9"
			require.NoError(t, w.workload.Client.Create(t.Context(), n))
		}, want: "the kubelet of Node n3 runs v1.32.9 and would be more than 3 minor versions older"},
		"a control plane that leaves kube-proxy behind": {controlPlane: true, servers: []server{one}, proxy: image("v1.32.9"), want: "DaemonSet kube-system/kube-proxy runs v1.32.9"},
		"a control plane two minors past another":       {controlPlane: true, servers: []server{{"cp-1", "v1.34.0", "v1.34.0", "", false, false}}, want: "within one minor version of each other"},
		"a Node that reports nothing": {controlPlane: true, servers: []server{one}, more: func(w *world) {
			n := workloadtest.Node("n3")
			n.Status.NodeInfo.KubeletVersion = ""
			require.NoError(t, w.workload.Client.Create(t.Context(), n))
		}, want: "the version that the kubelet of Node n3 reports can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, newVersion)
			if tc.controlPlane {
				w.machine(func(m *clusterv1.Machine) {
					m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
				})
				w.runsAPIServer(nodeName, image(older))
			}
			w.serves(tc.servers...)
			if tc.proxy != "" {
				w.runsKubeProxy(tc.proxy)
			}
			if tc.more != nil {
				tc.more(w)
			}
			w.reconcile()
			if tc.want == "" {
				require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase, w.update().Status.Message)
				return
			}
			mu := w.update()
			require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
			require.Equal(t, refitv1.ReasonSkew, mu.Status.Reason)
			require.Contains(t, mu.Status.Message, tc.want)
			require.NotContains(t, w.node.calls, "apply")
			require.Nil(t, mu.Status.Node, "the node is left to others meanwhile")
		})
	}
}

// TestAVersionGoesOnWhenTheControlPlaneIsThrough has a worker wait with nothing but that.
func TestAVersionGoesOnWhenTheControlPlaneIsThrough(t *testing.T) {
	w := under(t, newVersion)
	w.serves(server{"cp-1", newer, older, "", true, false})
	w.node.plans = []node.Plan{newVersion, newVersion, {}}
	require.Equal(t, retryNode, w.reconcile().RequeueAfter)
	require.Equal(t, refitv1.ReasonSkew, w.update().Status.Reason)

	var n corev1.Node
	require.NoError(t, w.workload.Client.Get(t.Context(), types.NamespacedName{Name: "node-cp-1"}, &n))
	n.Status.NodeInfo.KubeletVersion = newer
	require.NoError(t, w.workload.Client.Status().Update(t.Context(), &n))
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestNothingButAVersionWaitsForOthers has the same specs on a node that has the version already, and files to write.
func TestNothingButAVersionWaitsForOthers(t *testing.T) {
	w := under(t, writeA)
	w.serves(server{"cp-1", older, older, "", false, false})
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestSkewInTheWayOfTheNode has the node refuse the version as well: what is in its way elsewhere says more.
func TestSkewInTheWayOfTheNode(t *testing.T) {
	blocked := node.Plan{Blocked: []node.Problem{{Path: "Kubernetes version", Reason: "the API server is older"}}}
	w := under(t, blocked)
	w.serves(server{"cp-1", older, older, "", false, false})
	w.node.plans = []node.Plan{blocked}
	w.reconcile()
	require.Equal(t, refitv1.ReasonSkew, w.update().Status.Reason)

	w = under(t, blocked)
	w.node.plans = []node.Plan{blocked}
	w.serves(server{"cp-1", newer, "", "", true, false})
	w.reconcile()
	require.Equal(t, refitv1.ReasonBlocked, w.update().Status.Reason, "what is not known says less")
}
