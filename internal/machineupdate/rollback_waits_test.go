package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// A rollback is asked for while nothing may be decided about the Machine. That alone is no other try, and frees no slot.
func TestAFailedUpdateStaysSoUntilItsRollbackMayBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		stop, goOn func(*world)
		says       string
	}{
		"paused": {func(w *world) { w.pause(true) }, func(w *world) { w.pause(false) }, "the Cluster or the Machine is paused"},
		"taken": {annotateWith(clusterv1.DeleteMachineAnnotation), func(w *world) {
			w.machine(func(m *clusterv1.Machine) { delete(m.Annotations, clusterv1.DeleteMachineAnnotation) })
		}, "Cluster API"},
	} {
		t.Run(name, func(t *testing.T) {
			w := failedWorker(t)
			mu := w.update()
			mu.Status.Slot = &refitv1.Slot{TakenAt: metav1.NewTime(w.clock.Now())}
			require.NoError(t, w.Status().Update(t.Context(), mu))
			tc.stop(w)
			w.askRollback("1 alice")
			require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Equal(t, mu.Status.Message, st.Message)
			require.NotNil(t, st.Slot)
			require.Equal(t, refitv1.RollbackPending, st.Rollback.State)
			require.Contains(t, st.Rollback.Message, "the rollback waits: "+tc.says)
			require.Len(t, w.eventsWith("InPlaceUpdateRollbackWaits"), 1)
			before := w.update().ResourceVersion
			w.reconcile()
			require.Equal(t, before, w.update().ResourceVersion)

			w.setTemplate(badContent)
			tc.goOn(w)
			w.node.calls = nil
			w.reconcile()
			require.Equal(t, refitv1.RollbackRefused, w.requirePhase(refitv1.PhaseFailed).Rollback.State)
			require.Empty(t, w.node.calls, "nobody has asked for another try")
		})
	}
}

// failApply fails what is applied, unless it is a dry run.
func failApply(fail func() error) interceptor.Funcs {
	return interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		if len((&client.ApplyOptions{}).ApplyOptions(opts).DryRun) == 0 {
			if err := fail(); err != nil {
				return err
			}
		}
		return c.Apply(ctx, o, opts...)
	}}
}

// TestARollbackSaysWhatKeepsIt has a webhook be away, before anything is written and after.
func TestARollbackSaysWhatKeepsIt(t *testing.T) {
	away := apierrors.NewInternalError(errors.New("failed calling webhook acme: connection refused"))
	for name, tc := range map[string]struct {
		stop  interceptor.Funcs
		state refitv1.RollbackState
	}{
		"before": {interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return away
		}}, refitv1.RollbackPending},
		"after": {failApply(func() error { return away }), refitv1.RollbackWriting},
	} {
		t.Run(name, func(t *testing.T) {
			w := failedWorker(t)
			w.askRollback("1 alice")
			good := w.Client
			w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), tc.stop)
			require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Equal(t, tc.state, st.Rollback.State)
			require.Contains(t, st.Rollback.Message, "the rollback can't go on and is tried again: ")
			require.Contains(t, st.Rollback.Message, "failed calling webhook acme")
			require.Empty(t, w.update().Spec.Record.Status.Rollback.Message, "it may be another each time")

			w.reconciler.Client = good
			w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
			w.reconcile()
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			require.Equal(t, secretContent+"\n", w.content())
		})
	}
}

// TestARollbackThatIsAskedForAgainGoesOn has an object be refused when another was written, and be accepted later. Neither the warning
// nor what was begun is forgotten.
func TestARollbackThatIsAskedForAgainGoesOn(t *testing.T) {
	w := failedWorker(t)
	w.askRollback("1 alice")
	written, good := 0, w.Client
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), failApply(func() error {
		if written++; written > 1 {
			return apierrors.NewForbidden(bootstrapv1.GroupVersion.WithResource("kubeadmconfigs").GroupResource(), key.Name, errors.New("frozen"))
		}
		return nil
	}))
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.RollbackRefused, mu.Status.Rollback.State)
	require.Contains(t, mu.Status.Rollback.Message, "some of the Machine's objects have been written already: when the cause is gone, ask again")
	mu.Status.Rollback.Warning = "look after the ConfigMap"
	require.NoError(t, w.Status().Update(t.Context(), mu))

	w.reconciler.Client = good
	w.askRollback("2 bob")
	w.reconcile()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, secretContent+"\n", w.content())
	require.Equal(t, refitv1.RollbackWritten, st.Rollback.State)
	require.Equal(t, "look after the ConfigMap", st.Rollback.Warning)
	require.Contains(t, st.Rollback.Message, "asked for by bob; look after the ConfigMap")

	w.setContent(badContent)
	w.clock.Step(time.Hour)
	mu = w.update()
	u := &update{Reconciler: w.reconciler, mu: mu}
	metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.RollbackAnnotation, "3 carol")
	require.Empty(t, u.rollbackStatus(refitv1.RollbackWriting, "").Warning, "it was of an update that is done")
}

// TestARollbackThatWaitsKeepsNoNode has a rollback be asked for while the node is drained, and not go on: others may have the node meanwhile.
func TestARollbackThatWaitsKeepsNoNode(t *testing.T) {
	w := failedWorker(t)
	w.annotate(refitv1.RetryAnnotation)
	w.node.plans, w.node.applied, w.node.calls = []node.Plan{drainA}, nil, nil
	w.withPod()
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	good := w.Client
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), failApply(func() error {
		return apierrors.NewInternalError(errors.New("failed calling webhook acme: connection refused"))
	}))
	w.askRollback("1 alice")
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
	st := w.requireWaiting(refitv1.ReasonBlocked, "the rollback can't go on and is tried again: ")
	require.Contains(t, st.Rollback.Message, "connection refused")
	require.Empty(t, w.leaseOf().Spec.HolderIdentity)

	w.reconciler.Client = good
	w.node.plans, w.node.applied = []node.Plan{settled}, []node.Status{succeeded}
	for range 4 {
		w.reconcile()
	}
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}
