package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func cluster(namespace string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "prod", Annotations: map[string]string{"somebody": "else"},
	}}
}

// pauseWorld are people who pause.
func pauseWorld(t *testing.T, objects ...client.Object) (*world, func(name string) *Pauses, func() *clusterv1.Cluster) {
	t.Helper()
	w := newWorld(t, objects...)
	as := func(name string) *Pauses { return &Pauses{Client: w, Clock: w.clock, Out: &w.out, Admin: name} }
	return w, as, func() *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, c))
		return c
	}
}

func TestPauseAndResumeACluster(t *testing.T) {
	w, as, get := pauseWorld(t, cluster("fleet"))
	ann, bob := as("ann"), as("bob")

	require.ErrorContains(t, ann.Pause(t.Context(), get(), PauseOptions{Reason: " "}), "needs a reason")
	require.ErrorContains(t, ann.Pause(t.Context(), get(), PauseOptions{Reason: "x", Until: w.clock.Now()}), "which is over")
	require.Len(t, get().Annotations, 1)

	require.NoError(t, ann.Pause(t.Context(), get(), PauseOptions{Reason: "incident 42"}))
	require.Contains(t, w.said(), "Cluster fleet/prod is paused by ann: no update starts there")
	require.Equal(t, map[string]string{
		"somebody": "else", "capi-refit.dev/restrictive-until": "true",
		"capi-refit.dev/restrictive-until-reason": "incident 42", "capi-refit.dev/restrictive-until-by": "ann",
	}, get().Annotations)

	require.NoError(t, ann.Pause(t.Context(), get(), PauseOptions{Reason: "incident 42", Until: w.clock.Now().Add(time.Hour)}), "one's own is changed")
	require.Equal(t, "2026-10-03T21:00:00Z", get().Annotations["capi-refit.dev/restrictive-until"])
	require.Contains(t, w.said(), "until 2026-10-03T21:00:00Z")

	require.ErrorContains(t, bob.Pause(t.Context(), get(), PauseOptions{Reason: "mine"}), "paused by ann (incident 42)")
	require.ErrorContains(t, bob.Resume(t.Context(), get(), false), "--force")
	require.Len(t, get().Annotations, 4, "nothing was taken away")
	require.NoError(t, bob.Resume(t.Context(), get(), true))
	require.Equal(t, map[string]string{"somebody": "else"}, get().Annotations)
	w.said()
	require.NoError(t, ann.Resume(t.Context(), get(), false))
	require.Contains(t, w.said(), "is not paused")
}

func TestPauseIsSomebodyElsesUntilItIsOver(t *testing.T) {
	for value, mine := range map[string]bool{"true": false, "tomorrow": false, "2026-10-03T20:00:00Z": true, "2026-10-03T20:00:01Z": false} {
		c := cluster("fleet")
		c.Annotations["capi-refit.dev/restrictive-until"] = value
		_, as, get := pauseWorld(t, c)
		err := as("ann").Pause(t.Context(), get(), PauseOptions{Reason: "incident 42"})
		if mine {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, "somebody who did not say who they are", value)
		}
	}
}

func TestPauseOfWhatHasChangedMeanwhile(t *testing.T) {
	w, as, get := pauseWorld(t, cluster("fleet"))
	before, stale := get(), get()
	now := get()
	now.Annotations["new"] = "one"
	require.NoError(t, w.Update(t.Context(), now))
	require.NoError(t, as("ann").Pause(t.Context(), before, PauseOptions{Reason: "incident 42"}), "Clusters change all the time")
	require.Equal(t, "one", get().Annotations["new"], "what somebody else has written stays")
	require.Equal(t, "ann", get().Annotations["capi-refit.dev/restrictive-until-by"])
	require.ErrorContains(t, as("bob").Pause(t.Context(), stale, PauseOptions{Reason: "mine"}), "paused by ann", "it is decided by what it is by now")
	w.fail = func(verb string, obj client.Object) error {
		if verb == "patch" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "clusters"}, obj.GetName(), nil)
		}
		return nil
	}
	require.ErrorContains(t, as("ann").Resume(t.Context(), get(), false), "run the command again")
}

func TestFindCluster(t *testing.T) {
	w, _, _ := pauseWorld(t, cluster("fleet"), cluster("other"))
	_, err := FindCluster(t.Context(), w, Scope{Cluster: "prod"})
	require.ErrorContains(t, err, "say which with --namespace")
	c, err := FindCluster(t.Context(), w, Scope{Cluster: "prod", Namespace: "other"})
	require.NoError(t, err)
	require.Equal(t, "other", c.Namespace)
	_, err = FindCluster(t.Context(), w, Scope{Cluster: "nope", Namespace: "other"})
	require.ErrorContains(t, err, `no Cluster that is named "nope" in namespace other`)
}
