// Package policykindtest is the world in which policy kinds are tested: a fake management cluster with one namespace, a clock that
// tests step, the Events that were recorded, and an API server that can be down.
package policykindtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Start is the time on the clock of a new World: a Saturday, 20:00 UTC.
var Start = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

// ErrDown is the error of reads while the API server is down.
var ErrDown = errors.New("the API server is down")

// World is a management cluster. As a client it counts, and fails while it is down; its field Client does neither.
type World struct {
	client.Client
	T      testing.TB
	Clock  *clocktesting.FakeClock
	Events *events.FakeRecorder
	// Down has reads fail with ErrDown.
	Down bool
	// OnRead, if set, is called with each object and each list that is read while the API server is up.
	OnRead func(runtime.Object)
	// StatusWrites is how often statuses were updated.
	StatusWrites int
}

// Option is what a World has beside its defaults.
type Option func(*runtime.Scheme, *fake.ClientBuilder) error

// With returns an Option that has objects in the cluster.
func With(objects ...client.Object) Option {
	return func(_ *runtime.Scheme, b *fake.ClientBuilder) error {
		b.WithObjects(objects...)
		return nil
	}
}

// Kinds returns an Option that has more kinds in the cluster, as an AddToScheme adds them.
func Kinds(add func(*runtime.Scheme) error) Option {
	return func(s *runtime.Scheme, _ *fake.ClientBuilder) error { return add(s) }
}

// Intercept returns an Option that has funcs called instead of the API server.
func Intercept(funcs interceptor.Funcs) Option {
	return func(_ *runtime.Scheme, b *fake.ClientBuilder) error {
		b.WithInterceptorFuncs(funcs)
		return nil
	}
}

// New returns a World with the kinds of core, CustomResourceDefinitions, Cluster API's core and refit. The statuses of refit's kinds are
// subresources.
func New(t testing.TB, options ...Option) *World {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&refitv1.MachineUpdate{}, &refitv1.ChangeManagementPolicy{}, &refitv1.NodeDisruptionPolicy{}, &refitv1.BootImagePolicy{},
		&refitv1.KubernetesSource{},
	)
	for _, o := range options {
		require.NoError(t, o(scheme, b))
	}
	return &World{Client: b.Build(), T: t, Clock: clocktesting.NewFakeClock(Start), Events: events.NewFakeRecorder(1000)}
}

// Get implements client.Reader.
func (w *World) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := w.read(obj); err != nil {
		return err
	}
	return w.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (w *World) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := w.read(list); err != nil {
		return err
	}
	return w.Client.List(ctx, list, opts...)
}

func (w *World) read(obj runtime.Object) error {
	if w.Down {
		return ErrDown
	}
	if w.OnRead != nil {
		w.OnRead(obj)
	}
	return nil
}

// Status implements client.Client.
func (w *World) Status() client.SubResourceWriter { return &statusWriter{w.Client.Status(), w} }

type statusWriter struct {
	client.SubResourceWriter
	w *World
}

// Update implements client.SubResourceWriter.
func (s *statusWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	s.w.StatusWrites++
	return s.SubResourceWriter.Update(ctx, obj, opts...)
}
