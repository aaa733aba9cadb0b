package workload

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestKindsThatAreNotServedAreRemembered(t *testing.T) {
	began := time.Date(2026, time.October, 3, 20, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakeClock(began)
	kind := schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenanceList"}
	list := func() client.ObjectList {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(kind)
		return l
	}
	asked := 0
	var answer error
	c := RememberAbsent(interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			asked++
			return answer
		},
	}), clock)
	for _, answer = range []error{
		&meta.NoKindMatchError{GroupKind: kind.GroupKind()},
		apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "nodemaintenances"}, ""),
	} {
		asked = 0
		require.Equal(t, answer, c.List(t.Context(), list()))
		clock.Step(absentFor - 1)
		require.Equal(t, answer, c.List(t.Context(), list()))
		require.Equal(t, 1, asked)
		require.Error(t, c.List(t.Context(), &corev1.NodeList{}), "another kind is another question")
		require.Equal(t, 2, asked)
		clock.Step(absentFor)
	}

	answer, asked = nil, 0
	require.NoError(t, c.List(t.Context(), list()), "it is there by now")
	require.NoError(t, c.List(t.Context(), list()))
	require.Equal(t, 2, asked, "what is there is asked for each time")

	answer, asked = errors.New("connection refused"), 0
	require.Error(t, c.List(t.Context(), list()))
	require.Error(t, c.List(t.Context(), list()))
	require.Equal(t, 2, asked, "what can't be asked is not absent")

	answer = &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	require.Error(t, c.List(t.Context(), list()))
	clock.SetTime(began)
	asked = 0
	require.Error(t, c.List(t.Context(), list()))
	require.Equal(t, 1, asked, "the clock was put back")
}

// TestADaemonSetThatIsNotThereIsRemembered, and one that is there is read each time, as all else is.
func TestADaemonSetThatIsNotThereIsRemembered(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, time.October, 3, 20, 0, 0, 0, time.UTC))
	asked := 0
	var answer error
	c := RememberAbsent(interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			asked++
			return answer
		},
	}), clock)
	get := func(name string) error {
		ds := &metav1.PartialObjectMetadata{}
		ds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
		return c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, ds)
	}
	answer = apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "kured")
	require.Equal(t, answer, get("kured"))
	clock.Step(absentFor - 1)
	require.Equal(t, answer, get("kured"))
	require.Equal(t, 1, asked)
	require.Error(t, get("another"))
	require.Error(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{}))
	require.Error(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{}))
	require.Equal(t, 4, asked, "nothing else is remembered")

	clock.Step(1)
	answer = nil
	require.NoError(t, get("kured"), "it is there by now")
	require.NoError(t, get("kured"))
	require.Equal(t, 6, asked, "what is there is asked for each time")

	answer = errors.New("connection refused")
	require.Error(t, get("kured"))
	require.Error(t, get("kured"))
	require.Equal(t, 8, asked, "what can't be asked is not absent")
}

// TestManyWhoAskAtOnceWaitForOneAnswer, and ask themselves if there is something, or that could not be found out.
func TestManyWhoAskAtOnceWaitForOneAnswer(t *testing.T) {
	const many = 10
	kind := schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenance"}
	for name, tt := range map[string]struct {
		answer error
		asked  int64
	}{
		"nothing is there":   {&meta.NoKindMatchError{GroupKind: kind.GroupKind()}, 1},
		"something is there": {nil, many},
		"that is not known":  {errors.New("connection refused"), many},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				answered := make(chan struct{})
				c := RememberAbsent(interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						asked.Add(1)
						<-answered
						return tt.answer
					},
				}), clocktesting.NewFakeClock(time.Date(2026, time.October, 3, 20, 0, 0, 0, time.UTC)))
				ask := func(ctx context.Context) error {
					list := &unstructured.UnstructuredList{}
					list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
					return c.List(ctx, list)
				}
				got := make(chan error, many)
				for range many {
					go func() { got <- ask(t.Context()) }()
				}
				synctest.Wait()
				require.EqualValues(t, 1, asked.Load())
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, ask(gone), context.Canceled, "who waits can give up")
				close(answered)
				for range many {
					require.Equal(t, tt.answer, <-got)
				}
				require.Equal(t, tt.asked, asked.Load())
				require.Empty(t, c.(*absentClient).absent.asking)
			})
		})
	}
}
