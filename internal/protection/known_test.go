package protection

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// counted has reads be counted, and returns a Protector that knows the objects as they are.
func (w *world) counted(t *testing.T, reads *int) *Protector {
	count := func(c client.Client) client.Client {
		return workloadtest.Before(c.(client.WithWatch), func(verb string, _ runtime.Object) error {
			if verb == "get" {
				*reads++
			}
			return nil
		})
	}
	known := &Known{
		Machine: MetadataOf(clusterv1.GroupVersion.WithKind("Machine"), &w.machine(t).ObjectMeta),
		Node:    MetadataOf(corev1.SchemeGroupVersion.WithKind("Node"), &w.node(t).ObjectMeta),
	}
	return &Protector{Management: count(w.management), Workload: count(w.workload), Known: known}
}

// TestWhatIsKnownIsNotReadAgain before it is written, and what has changed since is.
func TestWhatIsKnownIsNotReadAgain(t *testing.T) {
	w := newWorld(t, testMachine(nil), testNode(nil, nil))
	reads := 0
	p := w.counted(t, &reads)
	require.NoError(t, p.Protect(t.Context(), machine, node))
	require.Zero(t, reads)
	require.Contains(t, w.node(t).Annotations, doNotDisrupt)
	require.Contains(t, w.machine(t).Annotations, skipRemediation)

	n := w.node(t)
	n.Annotations["somebody"] = "else"
	require.NoError(t, w.workload.Update(t.Context(), n))
	require.NoError(t, p.Release(t.Context(), machine, node))
	require.Equal(t, 1, reads, "the Node is another by now, and the Machine is as it was written")
	require.Equal(t, map[string]string{"somebody": "else"}, w.node(t).Annotations)
	require.NotContains(t, w.machine(t).Annotations, skipRemediation)
}

// TestWhatIsKnownDecidesNothing: that nothing is to be written, or must not be, is found in the objects themselves.
func TestWhatIsKnownDecidesNothing(t *testing.T) {
	w := newWorld(t, testMachine(nil), testNode(nil, nil))
	reads := 0
	require.NoError(t, w.counted(t, &reads).Protect(t.Context(), machine, node))
	p := w.counted(t, &reads)
	n := w.node(t)
	delete(n.Annotations, doNotDisrupt)
	require.NoError(t, w.workload.Update(t.Context(), n))
	require.NoError(t, p.Protect(t.Context(), machine, node))
	require.Equal(t, 2, reads)
	require.Contains(t, w.node(t).Annotations, doNotDisrupt)

	p = w.counted(t, &reads)
	p.Known.Node.UID = "another"
	require.NoError(t, p.Release(t.Context(), machine, node), "another object of the name is not meant")
	require.NotContains(t, w.node(t).Annotations, doNotDisrupt)
}
