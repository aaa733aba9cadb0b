package liveread

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var prod = client.ObjectKey{Namespace: "fleet", Name: "prod"}

// server is an API server that answers when it is told to. Each request sees how many came before it.
type server struct {
	client.Reader
	answer chan error

	mu    sync.Mutex
	asked int
	ended int // requests that nobody waited for any more
}

func (s *server) Get(ctx context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetLabels(map[string]string{"a": "b"})
	return s.request(ctx, obj)
}

func (s *server) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return s.request(ctx, list)
}

func (s *server) request(ctx context.Context, into interface{ SetResourceVersion(version string) }) error {
	s.mu.Lock()
	s.asked++
	into.SetResourceVersion(strconv.Itoa(s.asked))
	s.mu.Unlock()
	select {
	case err := <-s.answer:
		return err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended++
		return ctx.Err()
	}
}

// count returns one of its numbers.
func (s *server) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

// answered is what a Get has returned.
type answered struct {
	obj client.Object
	err error
}

// asks reads an object of a name, and returns where what it has read comes.
type asks func(ctx context.Context, obj client.Object) chan answered

// bubble runs a test with a reader that shares requests to a server.
func bubble(t *testing.T, test func(t *testing.T, s *server, ask asks)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: make(chan error)}
		reader := Share(s)
		test(t, s, func(ctx context.Context, obj client.Object) chan answered {
			got := make(chan answered, 1)
			go func() { got <- answered{obj, reader.Get(ctx, prod, obj)} }()
			synctest.Wait()
			return got
		})
		synctest.Wait()
		require.Empty(t, reader.reads, "what nobody reads is not kept")
	})
}

// TestNobodyIsAnsweredByWhatWasBefore: who comes while a request is under way waits for the next one, which many share.
func TestNobodyIsAnsweredByWhatWasBefore(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, ask asks) {
		first := ask(t.Context(), &clusterv1.Cluster{})
		var later []chan answered
		for range 10 {
			later = append(later, ask(t.Context(), &clusterv1.Cluster{}))
		}
		require.Equal(t, 1, s.count(&s.asked))
		s.answer <- nil
		got := <-first
		require.NoError(t, got.err)
		require.Equal(t, "1", got.obj.GetResourceVersion())
		s.answer <- nil
		for _, one := range later {
			got := <-one
			require.NoError(t, got.err)
			require.Equal(t, "2", got.obj.GetResourceVersion())
			require.Equal(t, map[string]string{"a": "b"}, got.obj.GetLabels())
			got.obj.GetLabels()["a"] = "each has its own"
		}
		require.Equal(t, 2, s.count(&s.asked))
	})
}

func TestAnErrorIsThatOfAllWhoWaitForIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, ask asks) {
		first, second, third := ask(t.Context(), &corev1.Secret{}), ask(t.Context(), &corev1.Secret{}), ask(t.Context(), &corev1.Secret{})
		no := errors.New("no")
		s.answer <- no
		require.Equal(t, no, (<-first).err)
		s.answer <- nil
		require.NoError(t, (<-second).err)
		require.NoError(t, (<-third).err)
		again := ask(t.Context(), &corev1.Secret{})
		s.answer <- nil
		require.NoError(t, (<-again).err)
		require.Equal(t, 3, s.count(&s.asked))
	})
}

// TestWhoGivesUpIsNotWaitedFor, and ends no request that others wait for.
func TestWhoGivesUpIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, ask asks) {
		short, cancel := context.WithCancel(t.Context())
		first, other := ask(short, &corev1.Secret{}), ask(short, &corev1.Secret{})
		stays := ask(t.Context(), &corev1.Secret{})
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		require.ErrorIs(t, (<-other).err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 1, s.count(&s.ended), "nobody waited for it")
		s.answer <- nil
		require.NoError(t, (<-stays).err)

		short, cancel = context.WithCancel(t.Context())
		first = ask(t.Context(), &corev1.Secret{})
		other = ask(short, &corev1.Secret{})
		cancel()
		require.ErrorIs(t, (<-other).err, context.Canceled)
		stays = ask(t.Context(), &corev1.Secret{})
		s.answer <- nil
		require.NoError(t, (<-first).err)
		s.answer <- nil
		require.NoError(t, (<-stays).err)
		require.Equal(t, 4, s.count(&s.asked))
	})
}

// TestARequestThatHangsKeepsNobodyForLong who has come since.
func TestARequestThatHangsKeepsNobodyForLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, ask asks) {
		first, second, third := ask(t.Context(), &clusterv1.Cluster{}), ask(t.Context(), &clusterv1.Cluster{}), ask(t.Context(), &clusterv1.Cluster{})
		time.Sleep(patience - 1)
		synctest.Wait()
		require.Equal(t, 1, s.count(&s.asked))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 3, s.count(&s.asked), "each asks by itself")
		for range 3 {
			s.answer <- nil
		}
		for _, one := range []chan answered{first, second, third} {
			require.NoError(t, (<-one).err)
		}
	})
}

// TestObjectsAreToldApart: by kind, and what few read is read by each.
func TestObjectsAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, ask asks) {
		of := func(kind string) client.Object {
			o := &metav1.PartialObjectMetadata{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
			return o
		}
		all := []client.Object{&clusterv1.Cluster{}, &corev1.Secret{}, of("Secret"), of("Namespace"), &clusterv1.Machine{}, &clusterv1.Machine{}}
		var got []chan answered
		for _, obj := range all {
			got = append(got, ask(t.Context(), obj))
		}
		require.Equal(t, len(all), s.count(&s.asked))
		for range all {
			s.answer <- nil
		}
		for _, one := range got {
			require.NoError(t, (<-one).err)
		}
	})
}

// TestListsOfPoliciesAreShared by those of a namespace; others are read by each.
func TestListsOfPoliciesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: make(chan error)}
		reader := Share(s)
		versions := make(chan string, 10)
		ask := func(list client.ObjectList, opts ...client.ListOption) {
			go func() {
				err := reader.List(t.Context(), list, opts...)
				assert.NoError(t, err)
				versions <- list.GetResourceVersion()
			}()
			synctest.Wait()
		}
		here := client.InNamespace("fleet")
		for range 3 {
			ask(&refitv1.ChangeManagementPolicyList{}, here)
		}
		require.Equal(t, 1, s.count(&s.asked))
		ask(&refitv1.ChangeManagementPolicyList{}, client.InNamespace("other"))
		ask(&refitv1.ChangeManagementPolicyList{}, here, client.Limit(5))
		ask(&refitv1.NodeDisruptionPolicyList{}, here)
		ask(&clusterv1.MachineList{}, here)
		ask(&clusterv1.MachineList{}, here)
		require.Equal(t, 6, s.count(&s.asked))
		for range 7 {
			s.answer <- nil
			synctest.Wait()
		}
		require.Equal(t, 7, s.count(&s.asked))
		close(versions)
		got := map[string]int{}
		for v := range versions {
			got[v]++
		}
		require.Equal(t, map[string]int{"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1, "7": 2}, got)
	})
}
