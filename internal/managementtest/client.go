// Package managementtest has fakes of management clusters: their API server, and the Machines, Clusters and MachineUpdates in it.
package managementtest

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// Start is when tests begin: a Saturday, 20:00 UTC.
var Start = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

// NewScheme returns the kinds of Kubernetes, Cluster API, its bootstrap provider and refit, and more.
func NewScheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, refitv1.AddToScheme,
	}, more...) {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Statuses are the kinds whose status is a subresource.
func Statuses() []client.Object {
	return []client.Object{
		&refitv1.MachineUpdate{}, &refitv1.ChangeManagementPolicy{}, &refitv1.ClusterChangeManagementPolicy{}, &refitv1.NodeDisruptionPolicy{}, &refitv1.BootImagePolicy{},
		&refitv1.KubernetesSource{}, &refitv1.PendingChange{}, &refitv1.UpdaterRegistration{}, &refitv1.NodeAccess{},
	}
}

// NewBuilder returns a builder of fake clients without managed fields.
func NewBuilder(scheme *runtime.Scheme) *fake.ClientBuilder {
	return indexed(scheme, workloadtest.NewBuilder(scheme).WithStatusSubresource(Statuses()...))
}

// indexed has what is built find objects by what a manager's cache is indexed by.
func indexed(scheme *runtime.Scheme, b *fake.ClientBuilder) *fake.ClientBuilder {
	for _, obj := range index.Indexed() {
		if _, _, err := scheme.ObjectKinds(obj); err != nil {
			continue // a world without that kind
		}
		for field, by := range index.Fields() {
			b = b.WithIndex(obj, field, by)
		}
	}
	return b
}

// New returns a client of an API server that has objects.
func New(objects ...client.Object) client.WithWatch {
	return NewBuilder(NewScheme()).WithObjects(objects...).Build()
}

// NewOf returns a fake client of an API server that has more kinds.
func NewOf(kinds []func(*runtime.Scheme) error, objects ...client.Object) client.WithWatch {
	return NewBuilder(NewScheme(kinds...)).WithObjects(objects...).Build()
}

// As returns a client of a user, by whose name a SelfSubjectReview is answered.
func As(user string, c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
				review.Status.UserInfo.Username = user
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
	})
}
