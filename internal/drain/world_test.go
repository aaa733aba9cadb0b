package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// start is when the drains of the tests begin.
var start = managementtest.Start

var errAway = errors.New("connection refused")

const owner = types.UID("machine-uid")

var ref = NodeRef{Name: "w1", UID: workloadtest.UID("w1")}

// world is a workload cluster with the nodes w1, which is cordoned, and w2, and the management cluster of its Machine. The
// clients may be those of other API servers; only evictions needs the fake.
type world struct {
	t          *testing.T
	client     client.WithWatch
	clientset  kubernetes.Interface
	management client.WithWatch
	clock      *clocktesting.FakePassiveClock
	machine    *clusterv1.Machine
	evictions  *evictions
	drainer    *Drainer
	req        Request
}

func newWorld(t *testing.T) *world {
	clientset := clientsetfake.NewClientset()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(start), clientset: clientset, evictions: newEvictions(clientset),
		client:     fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(),
		management: managementtest.New(),
		machine:    managementtest.Machine("lab", "m1", "c1", func(m *clusterv1.Machine) { m.UID, m.Labels["os"] = owner, "linux" }),
	}
	w.drainer = &Drainer{Client: w.client, Clientset: w.clientset, Rules: unordered(w.management), Clock: w.clock}
	w.req = Request{Machine: w.machine, Node: ref, Since: start}
	w.add(
		node("w1", corev1.ConditionTrue, func(n *corev1.Node) { n.Spec.Unschedulable = true }), node("w2", corev1.ConditionTrue),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "web"}}},
		managementtest.Cluster("lab", "c1", map[string]string{"stage": "test"}),
	)
	return w
}

// add creates objects in the cluster where they belong.
func (w *world) add(objs ...client.Object) {
	ctx := w.t.Context()
	for _, obj := range objs {
		var err error
		switch o := obj.(type) {
		case *corev1.Pod:
			_, err = w.clientset.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *appsv1.DaemonSet:
			_, err = w.clientset.AppsV1().DaemonSets(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *clusterv1.Cluster, *clusterv1.MachineDrainRule:
			err = w.management.Create(ctx, o)
		default:
			err = w.client.Create(ctx, o)
		}
		require.NoError(w.t, err)
	}
}

// gone deletes pods, as their kubelet does in the end.
func (w *world) gone(names ...string) {
	for _, name := range names {
		require.NoError(w.t, w.clientset.CoreV1().Pods("web").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	}
}

func (w *world) pass() Progress {
	w.t.Helper()
	p, err := w.drainer.Pass(w.t.Context(), w.req)
	require.NoError(w.t, err)
	return p
}

// node reads the node that is drained.
func (w *world) node() *corev1.Node {
	var n corev1.Node
	require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Name: ref.Name}, &n))
	return &n
}

// edit does to the node what others do.
func (w *world) edit(change func(*corev1.Node)) {
	n := w.node()
	change(n)
	require.NoError(w.t, w.client.Update(w.t.Context(), n))
}

// heard sets the node's Ready condition.
func (w *world) heard(status corev1.ConditionStatus) {
	n := w.node()
	workloadtest.Ready(status)(n)
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), n))
}

// intercept puts what happens to requests between the Drainer and the workload cluster.
func (w *world) intercept(funcs interceptor.Funcs) {
	w.drainer.Client = interceptor.NewClient(w.client, funcs)
}

func node(name string, ready corev1.ConditionStatus, edits ...func(*corev1.Node)) *corev1.Node {
	return workloadtest.Node(name, append([]func(*corev1.Node){workloadtest.Ready(ready)}, edits...)...)
}

// pod is a pod of a ReplicaSet that runs on w1.
func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "w1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	of("ReplicaSet")(p)
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// of makes a pod one of a set of that kind.
func of(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "set", UID: "set-uid", Controller: ptr.To(true)}}
	}
}

// labelled has a pod say itself how it is drained.
func labelled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = value }
}

func deletedAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.NewTime(at)), []string{"test/stay"}
	}
}

// evictions does what the API server does with evictions, and keeps them.
type evictions struct {
	mu    sync.Mutex
	asked []policyv1.Eviction
	// refuse is the answer to the eviction of a pod, by name.
	refuse map[string]error
}

func newEvictions(clientset *clientsetfake.Clientset) *evictions {
	e := &evictions{refuse: map[string]error{}}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	clientset.PrependReactor("create", "pods/eviction", func(action clienttesting.Action) (bool, runtime.Object, error) {
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = append(e.asked, *eviction)
		if err := e.refuse[eviction.Name]; err != nil {
			return true, nil, err
		}
		obj, err := clientset.Tracker().Get(pods, eviction.Namespace, eviction.Name)
		if err != nil || len(eviction.DeleteOptions.DryRun) > 0 {
			return true, nil, err
		}
		p := obj.(*corev1.Pod).DeepCopy()
		p.DeletionTimestamp = ptr.To(metav1.NewTime(start.Add(30 * time.Second)))
		return true, nil, clientset.Tracker().Update(pods, p, p.Namespace)
	})
	// The fake does not know field selectors, and gives pods in an order that no API server promises.
	clientset.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := clientset.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		selector := action.(clienttesting.ListAction).GetListRestrictions().Fields
		list := &corev1.PodList{}
		for _, p := range obj.(*corev1.PodList).Items {
			if selector.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) {
				list.Items = append(list.Items, p)
			}
		}
		slices.Reverse(list.Items)
		return true, list, nil
	})
	return e
}

// names returns which evictions were asked for since it was asked last, in order.
func (e *evictions) names() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := map[string]bool{}
	for _, eviction := range e.asked {
		seen[eviction.Name] = true
	}
	e.asked = nil
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// unordered gives MachineDrainRules in the order that is not their names', since no order is promised.
func unordered(c client.WithWatch) client.Reader {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if rules, ok := list.(*clusterv1.MachineDrainRuleList); ok {
				slices.Reverse(rules.Items)
			}
			return err
		},
	})
}

// failing lets no reads of one kind of objects through.
func failing[T any]() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := any(obj).(T); ok {
				return errAway
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := any(list).(T); ok {
				return errAway
			}
			return c.List(ctx, list, opts...)
		},
	}
}
