package bootimage

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestLevels is about Machines that no policy selects.
func TestLevels(t *testing.T) {
	const old, system = "http://images/k8s-v1.35.4.qcow2", "http://images/ubuntu-24.04.1.qcow2"
	const unknown = "Unknown: whether a machine that is made now from Metal3MachineTemplate t1 comes up with v1.36.1, as Machine a is: "
	for name, tc := range map[string]struct {
		objects []client.Object
		listErr error
		says    []string
		stale   bool
	}{
		"an older image": {
			objects: all(running("b", "v1.36.1", old), running("a", "v1.36.1", old)), stale: true,
			says: []string{"a machine that is made now from Metal3MachineTemplate t1 boots an older version of Kubernetes than machines that run: it names image.url=" + old + ", and Machine a is of v1.36.1"},
		},
		"older counts before unknown": {
			objects: all(running("a", "v1.36.1", system), running("b", "v1.36.1", old)), stale: true,
			says: []string{"a machine that is made now from Metal3MachineTemplate t1 boots an older version of Kubernetes than machines that run: it names image.url=" + old + ", and Machine b is of v1.36.1"},
		},
		"the same version":     {objects: running("a", "v1.35.4", old)},
		"an image without one": {objects: running("a", "v1.36.1", system), says: []string{unknown + "image.url=" + system + " does not say which version of Kubernetes is in it"}},
		"the provider finds it by the version": {objects: []client.Object{
			capiMachine("a", "AWSMachine"), infraObject("AWSMachine", "a", "instanceType", "m5.large"),
		}},
		"a kind of which nothing is known": {
			objects: []client.Object{capiMachine("a", "FooMachine"), infraObject("FooMachine", "a", "image", "x")},
			says: []string{"Unknown: whether a machine that is made now from a template of a FooMachine comes up with v1.36.1, as Machine a is: " +
				"refit does not know where a FooMachine names its image; the kinds of a BootImagePolicy can say it"},
		},
		"what may not be read": {
			objects: running("a", "v1.36.1", old), listErr: errors.New("you may not"),
			says: []string{"Unknown: whether a machine that is made now from a template of a Metal3Machine comes up with v1.36.1, as Machine a is: " +
				"list Metal3MachineList in namespace fleet: you may not"},
		},
		"no infrastructure machine": {
			objects: []client.Object{capiMachine("a", "Metal3Machine")},
			says:    []string{"Unknown: whether a machine that is made now from a template of a Metal3Machine comes up with v1.36.1, as Machine a is: there is no Metal3Machine a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			var list clusterv1.MachineList
			require.NoError(t, w.List(t.Context(), &list))
			live := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if tc.listErr != nil {
						return tc.listErr
					}
					return c.List(ctx, l, opts...)
				},
			})
			levels, err := Levels(t.Context(), live, w.policies, list.Items)
			require.NoError(t, err)
			var says []string
			for _, l := range levels {
				says = append(says, l.Says)
				require.Equal(t, tc.stale, l.Stale)
			}
			require.Equal(t, tc.says, says)
		})
	}
}
