//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
)

// green are the conditions by which the control plane's controller says how its etcd and its static pods are.
var green = []string{
	controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition,
}

// greens is how often a condition was seen in a status, and what each said the first time that it was False.
type greens struct {
	since time.Time
	seen  map[string]map[metav1.ConditionStatus]int
	red   map[string]string
}

// watchGreen looks twice a second at the conditions of the control plane, until the function is called that it returns.
func (u *suite) watchGreen(ctx context.Context) (end func() greens) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	g := greens{since: time.Now(), seen: map[string]map[metav1.ConditionStatus]int{}, red: map[string]string{}}
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
			var kcp controlplanev1.KubeadmControlPlane
			if u.Client.Get(ctx, u.Cluster.ObjectKey, &kcp) == nil {
				g.note(kcp.Status.Conditions)
			}
		}
	})
	return func() greens {
		cancel()
		done.Wait()
		return g
	}
}

func (g *greens) note(conditions []metav1.Condition) {
	for _, name := range green {
		status, message := metav1.ConditionUnknown, "it is not there"
		if c := meta.FindStatusCondition(conditions, name); c != nil {
			status, message = c.Status, c.Message
		}
		if g.seen[name] == nil {
			g.seen[name] = map[metav1.ConditionStatus]int{}
		}
		if g.seen[name][status]++; status == metav1.ConditionFalse && g.seen[name][status] == 1 {
			g.red[name] = message
		}
	}
}

// stayedGreen demands that the control plane's controller has never found etcd ill, and tells how else it was found, and what was waited
// for in the checks that it makes before it changes something. Unknown is not ill: it reaches etcd through kubelets, one of which may be
// restarting; and a pod whose kubelet has just begun is not Ready for a moment.
func (u *suite) stayedGreen(ctx context.Context, t *testing.T, g greens) {
	t.Helper()
	var list corev1.EventList
	require.NoError(t, u.Client.List(ctx, &list, client.InNamespace(u.Cluster.Namespace)))
	waited := ""
	for _, e := range list.Items {
		if e.InvolvedObject.Name == u.Cluster.Name && strings.Contains(e.Message, "preflight checks") && e.LastTimestamp.After(g.since) {
			waited += fmt.Sprintf("\n%d times: %s", max(1, int(e.Count)), e.Message)
		}
	}
	for _, name := range green {
		t.Logf("%s was looked at every half second: %v %s", name, g.seen[name], g.red[name])
		assert.NotZero(t, g.seen[name][metav1.ConditionTrue], name)
	}
	t.Logf("what the control plane's controller waited for in its preflight checks:%s", cmp.Or(waited, " nothing"))
	assert.Empty(t, g.red[controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition], "through five changes in a row etcd stays healthy")
}
