package machineupdate

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiversion "k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/workload"
)

const nodeName = "n1"

// fakeWorkload is a fake of the cluster that the machine is a node of.
type fakeWorkload struct {
	client.Client
	clientset kubernetes.Interface
	// err is met instead of the cluster.
	err error
	// beforeLease is called once, before the next update of a lease.
	beforeLease func()
}

// workloadScheme has all kinds that are looked for there: a fake client adds those that it does not know, and is not made for doing
// so at the same time as others.
var workloadScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	kind := schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenance"}
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	kind.Kind += "List"
	scheme.AddKnownTypeWithName(kind, &unstructured.UnstructuredList{})
	return scheme
})

func newFakeWorkload(now clock.PassiveClock) *fakeWorkload {
	clientset := kubernetesfake.NewClientset()
	clientset.Discovery().(*discoveryfake.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: "v1.36.0"}
	f := &fakeWorkload{clientset: clientset}
	f.Client = newFakeClient(workloadScheme()).WithObjects(readyNode(nodeName), readyNode("n2")).
		WithStatusSubresource(&corev1.Node{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if _, ok := obj.(*coordinationv1.Lease); ok {
					obj.SetUID(uuid.NewUUID()) // without one a lease is never seen to lapse
				}
				err := c.Create(ctx, obj, opts...)
				if _, ok := obj.(*coordinationv1.Lease); ok && len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
					obj.SetCreationTimestamp(metav1.NewTime(now.Now())) // an API server tells its time by that
				}
				return err
			},
			Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
				if _, ok := obj.(*coordinationv1.Lease); ok && f.beforeLease != nil {
					meanwhile := f.beforeLease
					f.beforeLease = nil
					meanwhile()
				}
				return c.Update(ctx, obj, opts...)
			},
		}).Build()
	return f
}

// Get implements Workloads.
func (f *fakeWorkload) Get(context.Context, client.ObjectKey) (*workload.Cluster, error) {
	if f.err != nil {
		return nil, f.err
	}
	return &workload.Cluster{Client: f.Client, Clientset: f.clientset}, nil
}

func readyNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.UID = types.UID("uid-of-" + name)
	n.Status.NodeInfo.KubeletVersion = "v1.35.9"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}
