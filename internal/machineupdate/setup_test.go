package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestAClusterThatIsNoLongerPausedWakesItsUpdates(t *testing.T) {
	cluster := func(paused bool, annotations map[string]string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1", Annotations: annotations}}
		c.Spec.Paused = ptr.To(paused)
		return c
	}
	annotated := map[string]string{clusterv1.PausedAnnotation: ""}
	for name, tc := range map[string]struct {
		before, after *clusterv1.Cluster
		want          bool
	}{
		"no longer paused":               {cluster(true, nil), cluster(false, nil), true},
		"no longer paused by annotation": {cluster(false, annotated), cluster(false, nil), true},
		"still paused by annotation":     {cluster(true, annotated), cluster(false, annotated), false},
		"paused now":                     {cluster(false, nil), cluster(true, nil), false},
		"not paused":                     {cluster(false, nil), cluster(false, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, unpaused.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}))
		})
	}

	w := newWorld(t)
	w.ask()
	w.pause(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "")
	request := []ctrl.Request{{NamespacedName: key}}
	require.Equal(t, request, w.reconciler.waitingForCluster(t.Context(), cluster(false, nil)))
	other := cluster(false, nil)
	other.Name = "c2"
	require.Empty(t, w.reconciler.waitingForCluster(t.Context(), other))
	require.Equal(t, request, w.reconciler.waiting(t.Context(), &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace}}))
	require.Empty(t, w.reconciler.waiting(t.Context(), &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}}))
}

func TestASecretWakesThoseThatMayWaitForIt(t *testing.T) {
	w := newWorld(t)
	w.ask()
	require.NoError(t, w.Delete(t.Context(), secret("ssh")))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonNodeAccess, "ssh")
	require.Equal(t, []ctrl.Request{{NamespacedName: key}}, w.reconciler.waitingForSecret(t.Context(), secret("ssh")))
	elsewhere := secret("ssh")
	elsewhere.Namespace = "other"
	require.Empty(t, w.reconciler.waitingForSecret(t.Context(), elsewhere))

	w.pause(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "")
	require.Empty(t, w.reconciler.waitingForSecret(t.Context(), secret("ssh")), "no Secret ends that")
}
