// Package policykindtest is the world in which policy kinds are tested: a fake management cluster with one namespace, a clock that
// tests step, the Events that were recorded, and an API server that can be down.
package policykindtest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/managementtest"
)

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

// New returns a World with the kinds of managementtest.
func New(t testing.TB, options ...Option) *World {
	t.Helper()
	scheme := managementtest.NewScheme()
	b := managementtest.NewBuilder(scheme)
	for _, o := range options {
		require.NoError(t, o(scheme, b))
	}
	return &World{Client: b.Build(), T: t, Clock: clocktesting.NewFakeClock(managementtest.Start), Events: events.NewFakeRecorder(1000)}
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
