package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// TestStatusOfWhatIsNotThere: a mistyped name is an error, and not taken for peace.
func TestStatusOfWhatIsNotThere(t *testing.T) {
	onNode := func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "worker-17" }
	w := newWorld(t, machine("a", onNode), managementtest.Cluster("fleet", "prod", nil), update("a", refitv1.PhaseFailed, "NodeFailed", "no"))
	for name, c := range map[string]struct {
		scope    Scope
		machines []string
		says     string
	}{
		"a namespace":             {Scope{Namespace: "fleeet"}, nil, "there is no Cluster in namespace fleeet; `kubectl get clusters -A` lists all"},
		"a cluster":               {Scope{Namespace: "fleet", Cluster: "prdo"}, nil, "there is no Cluster prdo in namespace fleet; "},
		"a cluster of all":        {Scope{Cluster: "prdo"}, nil, "there is no Cluster prdo in any namespace; "},
		"a Machine":               {Scope{Namespace: "fleet"}, []string{"worker-17", "aa"}, `there is no Machine in namespace fleet that is named "aa" or whose node is`},
		"a Machine of a mistake":  {Scope{Namespace: "fleeet"}, []string{"a"}, "there is no Cluster in namespace fleeet"},
		"a node":                  {Scope{Namespace: "fleet"}, []string{"worker-17"}, ""},
		"a Machine that is there": {Scope{}, []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.status(0, 0)
			s.Scope, s.Machines = c.scope, c.machines
			watched := *s
			err := s.Show(t.Context())
			if c.says == "" {
				require.NoError(t, err)
				require.Contains(t, w.said(), "NodeFailed")
				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, watched.Watch(t.Context()), c.says)
			require.Empty(t, w.said())
		})
	}
	none := newWorld(t)
	s := none.status(0, 0)
	s.Client = interceptor.NewClient(none.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*clusterv1.ClusterList); ok {
				return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), "", nil)
			}
			return c.List(ctx, list, opts...)
		},
	})
	require.NoError(t, s.Show(t.Context()), "who may not list Clusters is shown what there is")
}

func TestWatchOfANode(t *testing.T) {
	w := newWorld(t, machine("w-2", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "worker-17" }), machine("new"), fleet()[3])
	out := newScreen()
	s := w.status(0, 0)
	s.Out, s.Machines = out, []string{"worker-17", "new"}
	stop := watching(t, s)
	out.until(t, "no update yet of new\n")
	out.until(t, "fleet/w-2 Waiting (Window): policy weekends")
	require.NoError(t, stop())
}
