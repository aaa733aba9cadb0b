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
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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

// NewClient returns a client of an API server that has objects, the Namespace of leases and a clock of its own.
func NewClient(now clock.PassiveClock, objects ...client.Object) client.WithWatch {
	store := &leaseStore{now: now, revision: 100, leases: map[types.NamespacedName][]byte{}}
	all := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: LeaseNamespace}}}
	for _, obj := range objects {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			utilruntime.Must(store.create(lease.DeepCopy()))
			continue
		}
		all = append(all, obj)
	}
	return NewBuilder(Scheme()).WithObjects(all...).WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(store.intercept()).Build()
}

// New returns a Cluster with what NewClient returns.
func New(now clock.PassiveClock, objects ...client.Object) *Cluster {
	clientset := kubernetesfake.NewClientset()
	clientset.Discovery().(*discoveryfake.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: ServerVersion}
	return &Cluster{Client: NewClient(now, objects...), Clientset: clientset}
}
