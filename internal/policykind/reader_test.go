package policykind_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

// read is what is read of a ConfigMap.
type read struct {
	policykind.Header

	says string
}

func configMap(namespace, name, says string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"says": says}}
}

type reader = policykind.Reader[*corev1.ConfigMap, *read]

func newWorld(t *testing.T, objects ...client.Object) (*policykindtest.World, *reader) {
	w := policykindtest.New(t, policykindtest.With(objects...))
	return w, policykind.NewReader(w, policykind.Kind[*corev1.ConfigMap, *read]{
		Name: "ConfigMap", Plural: "ConfigMaps",
		New:  func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Same: func(before, after *read) bool { return before.says == after.says }, // ConfigMaps have no generations
		Read: func(_ context.Context, c *corev1.ConfigMap) *read {
			return &read{policykind.HeaderOf(c, refitv1.MachinesSelector{}), c.Data["says"]}
		},
	})
}

// said is the name of what was read, and what it says.
type said struct{ name, says string }

// in returns what was read in a namespace.
func in(t *testing.T, r *reader, namespace string) []said {
	t.Helper()
	all, err := r.In(namespace)
	require.NoError(t, err)
	var out []said
	for _, one := range all {
		out = append(out, said{one.Name, one.says})
	}
	return out
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: name}}
}

func TestNothingReadIsNotNothingThere(t *testing.T) {
	w, r := newWorld(t, configMap("a", "one", "1"))
	const unread = "the ConfigMaps have not been read yet"
	require.EqualError(t, r.Ready(), unread)
	_, err := r.In("a")
	require.EqualError(t, err, unread)
	result, err := r.Reconcile(t.Context(), request("one"))
	require.NoError(t, err)
	require.Equal(t, time.Second, result.RequeueAfter)
	require.EqualError(t, r.Ready(), unread, "one of them is not all of them")
	w.Down = true
	require.ErrorIs(t, r.Prime(t.Context()), policykindtest.ErrDown)
	require.EqualError(t, r.Ready(), unread)
	w.Down = false
	require.NoError(t, r.Prime(t.Context()))
	require.NoError(t, r.Ready())
	require.Equal(t, []said{{"one", "1"}}, in(t, r, "a"))
}

func TestObjectsAreReadAgain(t *testing.T) {
	w, r := newWorld(t, configMap("a", "two", "2"), configMap("b", "one", "of b"))
	require.NoError(t, r.Prime(t.Context()))
	before, err := r.In("a")
	require.NoError(t, err)

	require.NoError(t, w.Create(t.Context(), configMap("a", "one", "1")))
	require.NoError(t, w.Create(t.Context(), configMap("a", "three", "3")))
	for _, name := range []string{"three", "one"} {
		_, err := r.Reconcile(t.Context(), request(name))
		require.NoError(t, err)
	}
	require.Equal(t, []said{{"one", "1"}, {"three", "3"}, {"two", "2"}}, in(t, r, "a"), "in the order of their names")

	var two corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), request("two").NamespacedName, &two))
	two.Data["says"] = "more"
	require.NoError(t, w.Update(t.Context(), &two))
	_, err = r.Reconcile(t.Context(), request("two"))
	require.NoError(t, err)
	require.Equal(t, []said{{"one", "1"}, {"three", "3"}, {"two", "more"}}, in(t, r, "a"))

	w.Down = true
	_, err = r.Reconcile(t.Context(), request("one"))
	require.ErrorIs(t, err, policykindtest.ErrDown)
	w.Down = false
	require.Len(t, in(t, r, "a"), 3, "what can't be read again stays")

	require.NoError(t, w.Delete(t.Context(), &two))
	_, err = r.Reconcile(t.Context(), request("two"))
	require.NoError(t, err)
	require.Equal(t, []said{{"one", "1"}, {"three", "3"}}, in(t, r, "a"))
	require.Equal(t, []said{{"one", "of b"}}, in(t, r, "b"), "of the same name, elsewhere")
	require.Len(t, before, 1, "what somebody has does not change")
	require.Equal(t, "2", before[0].says)
}

// TestObjectsChangeWhileTheyAreRead is for the race detector.
// TestWhoListensIsToldAfterThat demands that whoever is told of a change finds it.
func TestWhoListensIsToldAfterThat(t *testing.T) {
	w, r := newWorld(t, configMap("a", "one", "1"))
	var heard []any
	r.OnChange(func(namespace string) { heard = append(heard, namespace, in(t, r, namespace)) })
	require.NoError(t, r.Prime(t.Context()))
	require.Empty(t, heard)
	require.NoError(t, w.Update(t.Context(), configMap("a", "one", "2")))
	_, err := r.Reconcile(t.Context(), request("one"))
	require.NoError(t, err)
	require.Equal(t, []any{"a", []said{{"one", "2"}}}, heard)
	_, err = r.Reconcile(t.Context(), request("one"))
	require.NoError(t, err)
	require.Len(t, heard, 2, "the same is no news")
}

// TestWhoListensIsToldWhatAPolicyHasSaidBefore, too: it may have been about other Machines.
func TestWhoListensIsToldWhatAPolicyHasSaidBefore(t *testing.T) {
	w, r := newWorld(t, configMap("a", "one", "1"), configMap("a", "two", "1"))
	var heard []string
	r.OnEdit(func(_ string, versions []*read) {
		heard = nil
		for _, v := range versions {
			heard = append(heard, v.says)
		}
	})
	require.NoError(t, r.Prime(t.Context()))
	again := func(name string) []string {
		_, err := r.Reconcile(t.Context(), request(name))
		require.NoError(t, err)
		return heard
	}
	require.NoError(t, w.Update(t.Context(), configMap("a", "one", "2")))
	require.Equal(t, []string{"1", "2"}, again("one"))
	require.NoError(t, w.Delete(t.Context(), configMap("a", "one", "2")))
	require.Equal(t, []string{"2"}, again("one"))
	require.NoError(t, w.Create(t.Context(), configMap("a", "three", "3")))
	require.Equal(t, []string{"3"}, again("three"))
}

func TestObjectsChangeWhileTheyAreRead(t *testing.T) {
	_, r := newWorld(t, configMap("a", "one", "1"), configMap("a", "two", "2"))
	require.NoError(t, r.Prime(t.Context()))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if items, err := r.In("a"); err != nil || len(items) != 2 {
					t.Errorf("%d items, %v", len(items), err)
				}
			}
		})
	}
	for range 50 {
		_, err := r.Reconcile(t.Context(), request("one"))
		require.NoError(t, err)
	}
	all.Wait()
}
