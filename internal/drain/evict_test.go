package drain

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var podResource = schema.GroupResource{Resource: "pods"}

// byBudget is the API server's answer when a PodDisruptionBudget does not let a pod go.
func byBudget(message string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: message}}
	return err
}

func inTerminatingNamespace() error {
	err := apierrors.NewForbidden(podResource, "a", fmt.Errorf("namespace web is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestRefusedEvictions(t *testing.T) {
	const left = "1 pod left: 1 to be evicted (web/a)"
	for name, tc := range map[string]struct {
		err     error
		blocked string // without "pod web/a: "
	}{
		"by a budget that has no room": {
			err:     byBudget("The disruption budget front needs 2 healthy pods and has 2 currently"),
			blocked: "its PodDisruptionBudget front allows no disruption now",
		},
		"by a budget that gives no reason": {
			err:     byBudget("The disruption budget front does not allow evicting pods currently"),
			blocked: "its PodDisruptionBudget front allows no disruption now",
		},
		"by a budget that is not understood": {
			err: byBudget("The disruption budget front does not allow evicting pods currently because it failed sync: no controller"),
			blocked: "its PodDisruptionBudget front allows no disruption now: " +
				"it does not allow evicting pods currently because it failed sync: no controller",
		},
		"by a budget that is new": {
			err:     byBudget("The disruption budget front is still being processed by the server."),
			blocked: "its PodDisruptionBudget front allows no disruption now: it is still being processed by the server.",
		},
		"by a budget of a later API server": {
			err:     byBudget("not today"),
			blocked: "a PodDisruptionBudget allows no disruption now: not today",
		},
		"by more budgets than one": {
			err:     apierrors.NewInternalError(fmt.Errorf("this pod has more than one PodDisruptionBudget")),
			blocked: "it can't be evicted: Internal error occurred: this pod has more than one PodDisruptionBudget",
		},
		"by an admission webhook": {
			err:     apierrors.NewForbidden(podResource, "a", fmt.Errorf("ask the storage team")),
			blocked: `it can't be evicted: pods "a" is forbidden: ask the storage team`,
		},
		"in a namespace that goes": {
			err:     inTerminatingNamespace(),
			blocked: "its namespace is being deleted, which lets nothing be evicted and deletes the pod itself",
		},
		"by an API server that is busy": {
			err:     apierrors.NewTooManyRequestsError("slow down"),
			blocked: "the API server has too many requests; it is asked again",
		},
		"since the pod is gone":     {err: apierrors.NewNotFound(podResource, "a")},
		"since it is another pod":   {err: apierrors.NewConflict(podResource, "a", fmt.Errorf("the UID in the precondition does not match"))},
		"since the budget was busy": {err: apierrors.NewTimeoutError("couldn't update PodDisruptionBudget due to conflicts", 10)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("a"))
			w.evictions.refuse["a"] = tc.err
			p := w.pass()
			want := Progress{Left: 1, Message: left}
			if tc.blocked != "" {
				want.Blocked = []string{"pod web/a: " + tc.blocked}
				want.Message += "; pod web/a: " + tc.blocked
			}
			require.Equal(t, want, p)
			w.clock.SetTime(start.Add(time.Hour))
			require.Equal(t, want, w.pass(), "it is the same as long as nothing changes")

			delete(w.evictions.refuse, "a")
			require.Equal(t, Progress{Left: 1, Message: "1 pod left: 1 terminating (web/a)"}, w.pass())
			w.gone("a")
			require.True(t, w.pass().Done)
		})
	}
}

// What is no answer is an error, and says nothing about pods.
func TestEvictionWithoutAnswer(t *testing.T) {
	for name, answer := range map[string]error{
		"the connection breaks": errAway,
		"nobody serves":         apierrors.NewServiceUnavailable("try later"),
		"refit is not known":    apierrors.NewUnauthorized("who?"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("a"), pod("b"))
			w.evictions.refuse["b"] = answer
			p, err := w.drainer.Pass(t.Context(), w.req)
			require.ErrorIs(t, err, answer)
			require.ErrorContains(t, err, "drain Node w1: evict pod web/b: ")
			require.Zero(t, p)
		})
	}
}

func TestEvictionsThatEndWithTheCaller(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	ctx, cancel := context.WithCancel(t.Context())
	w.intercept(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		defer cancel()
		return c.List(ctx, list, opts...)
	}})
	_, err := w.drainer.Pass(ctx, w.req)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, w.evictions.names())
}

func TestBlockedIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		name := fmt.Sprintf("p%02d", 11-i)
		w.add(pod(name))
		w.evictions.refuse[name] = byBudget("The disruption budget front needs 2 healthy pods and has 2 currently")
	}
	w.evictions.refuse["p03"] = apierrors.NewBadRequest(strings.Repeat("ä", 3000))
	p := w.pass()
	require.Len(t, p.Blocked, 10)
	require.IsIncreasing(t, p.Blocked)
	require.Equal(t, 12, p.Left)
	require.Equal(t, 1024, utf8.RuneCountInString(p.Blocked[3]))
	require.Equal(t, "12 pods left: 12 to be evicted (web/p00, web/p01, web/p02, and 9 more); "+
		"pod web/p00: its PodDisruptionBudget front allows no disruption now; and 11 more blocked", p.Message)
}

// The eviction is of this very pod, with its own grace period.
func TestEvictionOptions(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	w.pass()
	require.Len(t, w.evictions.asked, 1)
	require.Equal(t, &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("a-uid")}, w.evictions.asked[0].DeleteOptions)
}

// A StatefulSet's next pod has the name of the former, and is not evicted in its place.
func TestAnotherPodOfTheName(t *testing.T) {
	w := newWorld(t)
	w.add(pod("db-0"))
	fakes := w.clientset.(*clientsetfake.Clientset)
	fakes.PrependReactor("create", "pods/eviction", func(action clienttesting.Action) (bool, runtime.Object, error) {
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		require.Equal(t, types.UID("db-0-uid"), *eviction.DeleteOptions.Preconditions.UID)
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}}
	})
	require.Equal(t, Progress{Left: 1, Message: "1 pod left: 1 to be evicted (web/db-0)"}, w.pass())
}

// An API server that lets an eviction wait for too long is asked again in the next round.
func TestEvictionThatTakesTooLong(t *testing.T) {
	w := newWorld(t)
	w.add(pod("a"))
	slow := func(clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(2 * evictionTime)
		return true, nil, errAway
	}
	w.clientset.(*clientsetfake.Clientset).PrependReactor("create", "pods/eviction", slow)
	synctest.Test(t, func(t *testing.T) {
		p, err := w.drainer.Pass(t.Context(), w.req)
		require.NoError(t, err)
		require.Equal(t, Progress{Left: 1, Message: "1 pod left: 1 to be evicted (web/a)"}, p)
	})
}
