package check

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
)

// large is a fleet with so many Clusters of three nodes each.
func large(t *testing.T, clusters int) *fleet {
	t.Helper()
	f := newFleet(t)
	f.cluster.SetName("")
	f.machine.SetName("")
	for i := range clusters {
		name := fmt.Sprintf("c-%02d", i)
		f.more = append(f.more, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}})
		for j := range 3 {
			m := managementtest.Machine("fleet", fmt.Sprintf("%s-%d", name, j), name)
			m.Status.NodeRef.Name = m.Name
			f.more = append(f.more, m)
		}
	}
	return f
}

// TestOneFleetHasOneOrder: who compares two runs sees what has changed.
func TestOneFleetHasOneOrder(t *testing.T) {
	run := func() []Finding {
		f := large(t, 12)
		f.refit.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--admission-port=9444", "--client-ca=x"} // and no --guard
		second := f.refit.DeepCopy()
		second.Namespace = "refit-two"
		f.more = append(f.more, second)
		for i := range 4 {
			f.more = append(f.more, &refitv1.ChangeManagementPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", i), Name: "p"}, Spec: refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: "Never"}},
			})
		}
		return f.run()
	}
	first := run()
	require.Greater(t, len(first), 30)
	require.True(t, slices.IsSortedFunc(first, func(a, b Finding) int {
		return slices.Compare([]string{a.Object, a.Check}, []string{b.Object, b.Check})
	}))
	for range 8 {
		require.Equal(t, first, run())
	}
}

// TestNodesAreAskedAtOnce: nodes that do not answer take as long as the slowest of ten, and no more than ten are asked at once.
func TestNodesAreAskedAtOnce(t *testing.T) {
	f := large(t, 4)
	var mu sync.Mutex
	under, most := 0, 0
	full := make(chan struct{})
	all := f.run(func(c *Checker) {
		c.Nodes, c.Reach = -1, func(context.Context, *clusterv1.Machine) error {
			mu.Lock()
			under++
			most = max(most, under)
			if under == atOnce && most == atOnce {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			mu.Unlock()
			select { // until as many as may be are under way
			case <-full:
			case <-time.After(10 * time.Second):
			}
			mu.Lock()
			under--
			mu.Unlock()
			return nil
		}
	})
	require.Equal(t, atOnce, most)
	n := 0
	for _, one := range all {
		if one.Check == "node" {
			n++
			require.Equal(t, "refit's login works on 3 of its 3 nodes, with what it takes to run the agent", one.Message)
		}
	}
	require.Equal(t, 4, n)
}
