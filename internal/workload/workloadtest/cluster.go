// Package workloadtest has fakes of workload clusters: their API server, how it is reached, and Nodes that are ready or not.
package workloadtest

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiversion "k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/workload"
)

// The versions of Kubernetes that a Cluster has at first: its nodes are one minor version behind its API server.
const (
	ServerVersion  = "v1.36.0"
	KubeletVersion = "v1.35.9"
)

// Cluster is a workload cluster, and how it is reached. What its Client has and what its Clientset has are apart.
type Cluster struct {
	Client    client.WithWatch
	Clientset kubernetes.Interface
	// Ask answers for single API servers. Nil: none can be asked.
	Ask workload.AskFunc
	// Err, if set, is the answer to whoever would reach the cluster.
	Err error
}

// Get returns the cluster, whatever its key, or Err. With it a Cluster is what reaches workload clusters, as workload.Clusters is.
func (c *Cluster) Get(context.Context, client.ObjectKey) (*workload.Cluster, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	return &workload.Cluster{Client: c.Client, Clientset: c.Clientset, Ask: c.Ask}, nil
}

// Scheme returns the kinds that are looked for in a workload cluster, the same Scheme each time. NodeMaintenances are among them: a fake
// client adds kinds that it does not know, and is not made for doing so at the same time as others.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	kind := schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenance"}
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	kind.Kind += "List"
	scheme.AddKnownTypeWithName(kind, &unstructured.UnstructuredList{})
	return scheme
})

// NewBuilder returns a builder of fake clients without managed fields, which take most of the time.
func NewBuilder(scheme *runtime.Scheme) *fake.ClientBuilder {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker)
}

// New returns a Cluster of objects, whose API server has a clock of its own: it answers who creates a Lease as a dry run with its time.
func New(now clock.PassiveClock, objects ...client.Object) *Cluster {
	c := NewBuilder(Scheme()).WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			_, lease := obj.(*coordinationv1.Lease)
			if lease {
				obj.SetUID(uuid.NewUUID()) // without one a lease is never seen to lapse
			}
			err := c.Create(ctx, obj, opts...)
			if lease && len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
				obj.SetCreationTimestamp(metav1.NewTime(now.Now()))
			}
			return err
		},
	}).Build()
	clientset := kubernetesfake.NewClientset()
	clientset.Discovery().(*discoveryfake.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: ServerVersion}
	return &Cluster{Client: c, Clientset: clientset}
}
