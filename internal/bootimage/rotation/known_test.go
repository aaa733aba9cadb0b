package rotation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
)

// keeper is a policy by which machines of production have to be replaced for another image.
func keeper() *refitv1.BootImagePolicy {
	p := policy("keep")
	p.Spec.Rotation = nil
	p.Spec.Selector.Clusters.MatchLabels = map[string]string{"env": "prod"}
	p.Spec.Selection.Mode = refitv1.NoBootImages
	return p
}

func (w *world) relabel(labels map[string]string) {
	w.T.Helper()
	var c clusterv1.Cluster
	require.NoError(w.T, w.Get(w.T.Context(), types.NamespacedName{Namespace: namespace, Name: "c1"}, &c))
	c.Labels = labels
	require.NoError(w.T, w.Update(w.T.Context(), &c))
}

// disruption is a NodeDisruptionPolicy.
func disruption(generation int64) *refitv1.NodeDisruptionPolicy {
	return &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rules", UID: "uid-rules", Generation: generation}}
}

// TestWhatElseDecidesSettles: a replica that does not know yet what has changed answers Cluster API's hooks by what was.
func TestWhatElseDecidesSettles(t *testing.T) {
	for name, tc := range map[string]struct {
		there  []client.Object
		change func(*world)
	}{
		"another policy goes": {[]client.Object{keeper()}, func(w *world) {
			require.NoError(w.T, w.Delete(w.T.Context(), keeper()))
		}},
		"another policy changes": {[]client.Object{keeper()}, func(w *world) {
			p := keeper()
			require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKeyFromObject(p), p))
			p.Spec.Selection.Mode = refitv1.AllBootImages
			p.Generation++
			require.NoError(w.T, w.Update(w.T.Context(), p))
		}},
		"another policy comes": {nil, func(w *world) {
			p := keeper()
			p.Spec.Selection.Mode = refitv1.AllBootImages
			require.NoError(w.T, w.Create(w.T.Context(), p))
		}},
		"a NodeDisruptionPolicy comes": {nil, func(w *world) { require.NoError(w.T, w.Create(w.T.Context(), disruption(1))) }},
		"a NodeDisruptionPolicy changes": {[]client.Object{disruption(1)}, func(w *world) {
			p := disruption(1)
			require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKeyFromObject(p), p))
			p.Generation++
			require.NoError(w.T, w.Update(w.T.Context(), p))
		}},
		"the Cluster is selected by the other policy no longer": {[]client.Object{keeper()}, func(w *world) {
			w.relabel(map[string]string{"env": "test"})
		}},
		"another replica leads": {nil, func(w *world) {
			w.controller = &Controller{
				Client: w.Client, Live: w.Client, Updaters: w.controller.Updaters, Recorder: w.Events, Clock: w.Clock, rollouts: newRollouts(),
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// As long as the Cluster is paused nothing is done.
			w := newWorld(t, append(append(basis(), deployment("workers", "Metal3MachineTemplate", "base")), tc.there...)...)
			w.pause(true)
			w.settle()
			require.Equal(t, refitv1.TargetPaused, w.target().State)
			w.pause(false)
			inputs := w.policy().Status.Rotation.Inputs
			tc.change(w)
			w.requireSettling("when all of refit can be expected to know what the policies say")
			require.Equal(t, inputs, w.policy().Status.Rotation.Inputs, "by which attempts are counted")
		})
	}
}

// TestOtherNamespacesDecideNothing: nobody waits for a policy that selects none of the machines.
func TestOtherNamespacesDecideNothing(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.pause(true)
	w.settle()
	w.pause(false)
	elsewhere := keeper()
	elsewhere.Namespace = "elsewhere"
	require.NoError(t, w.Create(t.Context(), elsewhere))
	_, err := w.reconcile()
	require.NoError(t, err)
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}

// TestOvertaken: what has changed since the pass began is known to the leader that judges, and may be to nobody else.
func TestOvertaken(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another policy goes":      func(w *world) { require.NoError(w.T, w.Delete(w.T.Context(), keeper())) },
		"the Cluster is relabeled": func(w *world) { w.relabel(map[string]string{"env": "test"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"), keeper())...)
			w.settle()
			require.Equal(t, refitv1.TargetRefused, w.target().State)
			once := change
			w.controller.Updaters = inplace.UpdatersFunc(func(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
				if once != nil {
					once(w)
					once = nil
				}
				return w.updaters(ctx, s)
			})
			result, err := w.reconcile()
			require.NoError(t, err)
			require.Equal(t, refitv1.TargetPending, w.target().State)
			require.Contains(t, w.target().Message, "has changed while refit looked at it")
			require.Equal(t, soon, result.RequeueAfter)
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
			w.settle()
			require.Equal(t, refitv1.TargetRotated, w.target().State)
		})
	}
}

// TestForgotten: nothing is remembered of a policy that is gone, or that rotates no more.
func TestForgotten(t *testing.T) {
	for name, out := range map[string]func(*world){
		"it is gone":         func(w *world) { require.NoError(w.T, w.Delete(w.T.Context(), w.policy())) },
		"it has no rotation": func(w *world) { w.Change("p", func(s *refitv1.BootImagePolicySpec) { s.Rotation = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.settle()
			key := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "p"}}.NamespacedName
			_, there := w.controller.remembered.Load(key)
			require.True(t, there)
			out(w)
			_, err := w.reconcile()
			require.NoError(t, err)
			_, there = w.controller.remembered.Load(key)
			require.False(t, there)
		})
	}
}
