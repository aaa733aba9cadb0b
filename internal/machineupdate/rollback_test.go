package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
)

const (
	badContent = "two\n"
	template   = "good"
)

// failedWorker is a world whose machine belongs to a MachineDeployment, with an update that has failed.
func failedWorker(t *testing.T) *world {
	w := newWorld(t)
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "workers-bad", UID: "uid-ms"}}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "workers", UID: "uid-md"}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, clusterv1.GroupVersion.WithKind("MachineDeployment"))}
	templateRef := func(name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfigTemplate", Name: name}
	}
	deployment.Spec.Template.Spec = clusterv1.MachineSpec{ClusterName: "c1", Version: "v1.36.0", InfrastructureRef: templateRef("infra")}
	deployment.Spec.Template.Spec.Bootstrap.ConfigRef = templateRef(template)
	good := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: template}}
	good.Spec.Template.Spec.Files = []bootstrapv1.File{{Path: "/etc/app/a", Content: secretContent + "\n"}}
	infra := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "infra"}}
	templates := objects()[0].DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
	templates.Name, templates.Spec.Names.Kind = "kubeadmconfigtemplates."+bootstrapv1.GroupVersion.Group, "KubeadmConfigTemplate"

	all := []client.Object{set, deployment, good, infra, templates}
	for _, o := range objects() {
		switch m := o.(type) {
		case *bootstrapv1.KubeadmConfig: // it is applied
			continue
		case *clusterv1.Machine:
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))}
			m.Spec.InfrastructureRef.Name = "infra"
		}
		all = append(all, o)
	}
	w.use(managementtest.NewForApply(testScheme(), all...))
	w.applyAsOwner("infra", nil)
	w.applied(badContent)

	w.ask()
	w.node.plans = []node.Plan{writeA}
	w.node.applied = []node.Status{{State: node.Failed, Message: "restart x.service failed", RolledBack: true}}
	w.reconcile()
	require.Equal(t, refitv1.PhaseFailed, w.update().Status.Phase)
	return w
}

// use has all that is tested use another client.
func (w *world) use(c client.Client) {
	w.Client, w.store.Client, w.store.Live = c, c, c
	w.reconciler.Client, w.reconciler.Live = c, c
	w.reconciler.Slots.Client, w.reconciler.Slots.Live = c, c
	w.policies = changemanagement.NewPolicies(c, c, w.clock)
	w.reconciler.Gate = newGate(c, w.policies, w.clock)
	w.readPolicies()
}

// applyAsOwner has Cluster API apply the spec of an object.
func (w *world) applyAsOwner(name string, spec any) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KubeadmConfig"))
	u.SetNamespace(key.Namespace)
	u.SetName(name)
	require.NoError(w.t, w.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("capi-machineset"), client.ForceOwnership))
}

// applied has Cluster API apply the content of the file.
func (w *world) applied(content string) {
	w.applyAsOwner(key.Name, map[string]any{"files": []any{map[string]any{"path": "/etc/app/a", "content": content}}})
}

func (w *world) askRollback(request string) {
	mu := w.update()
	metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.RollbackAnnotation, request)
	require.NoError(w.t, w.Update(w.t.Context(), mu))
}

func (w *world) content() string {
	var config bootstrapv1.KubeadmConfig
	require.NoError(w.t, w.Get(w.t.Context(), key, &config))
	return config.Spec.Files[0].Content
}

func TestAFailedUpdateIsRolledBack(t *testing.T) {
	w := failedWorker(t)
	st := w.update().Status
	require.Contains(t, st.Message, "put its MachineDeployment back as it was, and then: refit rollback -n lab m1")
	bad := st.ObservedDigest

	w.askRollback("2026-10-03T20:00:00Z alice")
	require.Equal(t, retryRollback, w.reconcile().RequeueAfter)
	st = w.update().Status
	require.Equal(t, refitv1.RollbackWriting, st.Rollback.State)
	require.Equal(t, "MachineDeployment lab/workers", st.Rollback.Owner)
	require.Equal(t, refitv1.PhaseFailed, st.Phase)
	require.Equal(t, secretContent+"\n", w.content())

	w.node.calls, w.node.plans, w.node.applied = nil, []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Equal(t, refitv1.RollbackWritten, mu.Status.Rollback.State)
	require.Equal(t, "the Machine's objects are as MachineDeployment lab/workers wants them now; asked for by alice", mu.Status.Rollback.Message)
	require.NotNil(t, mu.Status.Rollback.FinishedAt)
	require.NotEqual(t, bad, mu.Spec.Digest)
	require.Equal(t, []string{"plan", "apply", "plan"}, w.node.calls)
	require.True(t, w.ask(), "Cluster API asks for the same, and is done")
}

func TestARollbackIsARunLikeAnyOtherAndHasItsSlot(t *testing.T) {
	w := failedWorker(t)
	mu := w.update()
	at := metav1.NewTime(w.clock.Now().Truncate(time.Second))
	mu.Status.Slot, mu.Status.ApplyingSince = &refitv1.Slot{TakenAt: at}, &at // the node is half changed
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.askRollback("1 alice")
	w.reconcile()
	w.node.dialErr = errRefused
	w.reconcile()
	st := w.update().Status
	require.Equal(t, refitv1.ReasonUnreachable, st.Reason)
	require.Equal(t, refitv1.RollbackWritten, st.Rollback.State)
	require.NotNil(t, st.Slot)
	require.True(t, at.Equal(&st.Slot.TakenAt), "nobody else has had it meanwhile")
}

// Whoever leads next goes on where a rollback was left, and nothing is done on the node before it has ended.
func TestARollbackIsTakenUpAgain(t *testing.T) {
	var bad string // the digest that is rolled back
	killed := 0
	kill := func() error { killed++; return errors.New("killed") }
	for name, stop := range map[string]interceptor.Funcs{
		"before the objects are written": {Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if len((&client.ApplyOptions{}).ApplyOptions(opts).DryRun) == 0 {
				return kill()
			}
			return c.Apply(ctx, o, opts...)
		}},
		"before the update is asked for": {Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if mu, ok := o.(*refitv1.MachineUpdate); ok && mu.Spec.Digest != bad {
				return kill()
			}
			return c.Patch(ctx, o, p, opts...)
		}},
		"before its end is recorded": {SubResourceUpdate: func(ctx context.Context, c client.Client, s string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if mu, ok := o.(*refitv1.MachineUpdate); ok && mu.Status.Rollback != nil && mu.Status.Rollback.State == refitv1.RollbackWritten {
				return kill()
			}
			return c.SubResource(s).Update(ctx, o, opts...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := failedWorker(t)
			w.askRollback("1 alice")
			w.node.calls = nil
			bad, killed = w.update().Spec.Digest, 0
			w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), stop)
			for range 2 {
				if killed == 0 {
					_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				}
			}
			require.Equal(t, 1, killed)
			require.Equal(t, refitv1.RollbackWriting, w.update().Status.Rollback.State)
			require.Empty(t, w.node.calls)
			w.ask() // for what has been written by now

			w.reconciler.Client = w.Client
			w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
			w.reconcile()
			w.reconcile()
			st := w.update().Status
			require.Equal(t, refitv1.PhaseSucceeded, st.Phase, st.Message)
			require.Equal(t, refitv1.RollbackWritten, st.Rollback.State)
			require.Equal(t, secretContent+"\n", w.content())
			require.True(t, w.ask())
		})
	}
}

// A warning is of what was written first; whoever goes on with it still tells it.
func TestTheWarningOfARollbackIsTold(t *testing.T) {
	w := failedWorker(t)
	w.askRollback("1 alice")
	w.reconcile()
	mu := w.update()
	mu.Status.Rollback.Warning = "look after the ConfigMap"
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.node.plans, w.node.applied = []node.Plan{{}}, []node.Status{succeeded}
	w.reconcile()
	r := w.update().Status.Rollback
	require.Equal(t, "look after the ConfigMap", r.Warning)
	require.Contains(t, r.Message, "; look after the ConfigMap")
}

// An owner whose cache is behind may write over it: it has ended when it is there.
func TestARollbackThatIsWrittenOverIsWrittenAgain(t *testing.T) {
	w := failedWorker(t)
	w.askRollback("1 alice")
	w.reconcile()
	w.applied(badContent)
	require.Equal(t, retryRollback, w.reconcile().RequeueAfter)
	require.Equal(t, secretContent+"\n", w.content())
	require.Equal(t, refitv1.RollbackWriting, w.update().Status.Rollback.State)
}

func TestWhatIsNotRolledBack(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		says    string
	}{
		"what is wanted already": {func(w *world) { w.setTemplate(badContent) }, "MachineDeployment lab/workers wants what the Machine has already"},
		"what can't be made in place": {func(w *world) {
			var t bootstrapv1.KubeadmConfigTemplate
			require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: template}, &t))
			t.Spec.Template.Spec.Files[0].Path = "/etc/other"
			t.Spec.Template.Spec.PreKubeadmCommands = []string{"reboot"}
			require.NoError(w.t, w.Update(w.t.Context(), &t))
		}, "what MachineDeployment lab/workers wants can't be brought to the node in place"},
		"what Cluster API no longer asks for": {func(w *world) { w.mark(false) }, "its owner is heard: change the template"},
		"an owner that is gone": {func(w *world) {
			require.NoError(w.t, w.Delete(w.t.Context(), &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "workers"}}))
		}, "MachineDeployment lab/workers, which the Machine belongs to, is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := failedWorker(t)
			before := w.update()
			tc.arrange(w)
			w.askRollback("1 alice")
			w.node.calls = nil
			require.Zero(t, w.reconcile())
			st := w.update().Status
			require.Equal(t, refitv1.RollbackRefused, st.Rollback.State)
			require.Contains(t, st.Rollback.Message, tc.says)
			require.Equal(t, refitv1.PhaseFailed, st.Phase)
			require.Equal(t, before.Status.Message, st.Message)
			require.Equal(t, before.Spec.Digest, w.update().Spec.Digest)
			require.Equal(t, badContent, w.content())

			w.reconcile()
			require.Empty(t, w.node.calls, "it is refused once, and the update has failed as before")
			w.askRollback("2 alice")
			require.False(t, finished(w.update()), "another request is looked at")
		})
	}
}

// setTemplate changes what the owner wants.
func (w *world) setTemplate(content string) {
	var t bootstrapv1.KubeadmConfigTemplate
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: template}, &t))
	t.Spec.Template.Spec.Files[0].Content = content
	require.NoError(w.t, w.Update(w.t.Context(), &t))
}

// The owner may change its mind once more while refit writes.
func TestARollbackThatHasBecomePointlessLeavesTheFailure(t *testing.T) {
	w := failedWorker(t)
	w.askRollback("1 alice")
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if len((&client.ApplyOptions{}).ApplyOptions(opts).DryRun) == 0 {
				return apierrors.NewConflict(bootstrapv1.GroupVersion.WithResource("kubeadmconfigs").GroupResource(), key.Name, errors.New("written"))
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	w.reconcile()
	w.setTemplate(badContent)
	w.node.calls = nil
	w.reconcile()
	st := w.update().Status
	require.Equal(t, refitv1.PhaseFailed, st.Phase)
	require.Equal(t, refitv1.RollbackWritten, st.Rollback.State)
	require.Empty(t, w.node.calls)
}

// An update that waits, for a node that refuses its files, say, is not heard by its owner either.
func TestAnUpdateThatWaitsIsRolledBack(t *testing.T) {
	w := failedWorker(t)
	w.applied("three\n")
	w.ask()
	w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
	w.reconcile()
	require.Equal(t, refitv1.ReasonBlocked, w.requirePhase(refitv1.PhaseWaiting).Reason)
	w.askRollback("1 alice")
	w.reconcile()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, secretContent+"\n", w.content())
}

func TestWhatRunsOnTheNodeEndsBeforeARollback(t *testing.T) {
	w := failedWorker(t)
	w.applied("three\n")
	w.halfWay()
	mu := w.update()
	mu.Status.Phase = refitv1.PhaseApplying
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.askRollback("1 alice")
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, refitv1.RollbackRefused, st.Rollback.State, "Cluster API hears the owner by itself")
	require.Equal(t, "three\n", w.content())
}
