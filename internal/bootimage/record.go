package bootimage

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/updaters/image"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=machineupdates,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch

// recordAgain is when a Machine is looked at again that can't be recorded yet: its infrastructure machine is not there, or its
// Cluster is paused.
const recordAgain = time.Minute

// Recorder notes at each Machine that a policy selects from which image it has booted, once, and before its infrastructure machine
// can name another one. It runs in the leader only.
type Recorder struct {
	// Client reads Machines, Clusters and MachineUpdates out of caches, and writes.
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Policies *Policies
}

// SetupWithManager has the manager run the Recorder.
func (r *Recorder) SetupWithManager(mgr ctrl.Manager) error {
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("bootimage-recorder").
		For(&clusterv1.Machine{}, builder.WithPredicates(predicate.NewPredicateFuncs(unrecorded))).
		Watches(&refitv1.BootImagePolicy{}, handler.EnqueueRequestsFromMapFunc(r.unrecordedMachines),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})), r, &clusterv1.MachineList{}, unrecorded)
}

// unrecorded reports whether there is something to note at a Machine.
func unrecorded(o client.Object) bool {
	return o.GetAnnotations()[refitv1.BootedImageAnnotation] == "" && o.GetDeletionTimestamp().IsZero()
}

// unrecordedMachines are those that a policy may newly select.
func (r *Recorder) unrecordedMachines(ctx context.Context, policy client.Object) []ctrl.Request {
	var machines clusterv1.MachineList
	if err := r.Client.List(ctx, &machines, client.InNamespace(policy.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list Machines")
		return nil
	}
	var out []ctrl.Request
	for i := range machines.Items {
		if m := &machines.Items[i]; unrecorded(m) {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return out
}

// Reconcile notes the image of a Machine, if a policy selects it.
func (r *Recorder) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m clusterv1.Machine
	if err := r.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !unrecorded(&m) || !m.Spec.InfrastructureRef.IsDefined() {
		return ctrl.Result{}, nil // with the reference it comes again
	}
	paths, paused, err := r.paths(ctx, &m)
	if err != nil || len(paths) == 0 {
		return ctrl.Result{}, err
	}
	if paused {
		return ctrl.Result{RequeueAfter: recordAgain}, nil
	}
	infra, err := readMachine(ctx, r.Live, &m)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: recordAgain}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, foreign := ForeignController(infra); foreign {
		return ctrl.Result{}, nil // Status tells people
	}
	booted, err := r.booted(ctx, &m, infra, paths)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.write(ctx, &m, booted)
}

// paths returns the image fields of a Machine's infrastructure machine, or none if no policy selects the Machine or nobody knows
// the kind: with a change of the policies it is looked at again. It also reports whether the Machine is paused.
func (r *Recorder) paths(ctx context.Context, m *clusterv1.Machine) (paths []string, paused bool, err error) {
	all, err := r.Policies.In(m.Namespace)
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	var cluster clusterv1.Cluster
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	if err := r.Client.Get(ctx, key, &cluster); err != nil {
		return nil, false, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	selecting, err := r.Policies.SelectingIn(cluster.Labels, selection.RoleOf(m.Labels), inplace.SubjectOf(m))
	if err != nil {
		return nil, false, err
	}
	selected := Join(selecting, m.Labels)
	if len(selected.Policies) == 0 {
		return nil, false, nil
	}
	kind := kindOf(m)
	return image.Paths(kind.Group, kind.Kind, selected.Kinds...), annotations.IsPaused(&cluster, m), nil
}

// booted returns the image from which a machine has booted. That is what its infrastructure machine names, if that has not
// changed since it was made. It has not if nothing was updated in place, and either nothing in its spec was changed at all (but
// providers write to it, providerID for one), or the template from which it was made names the same image.
func (r *Recorder) booted(ctx context.Context, m *clusterv1.Machine, infra *unstructured.Unstructured, paths []string) (string, error) {
	var update refitv1.MachineUpdate
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(m), &update)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read MachineUpdate %s: %w", m.Name, err)
	}
	if err == nil || updating(m) || updating(infra) {
		return unknownImage, nil
	}
	name := nameOf(infra.Object["spec"], paths, m.Spec.Version)
	if infra.GetGeneration() == 1 {
		return name, nil
	}
	template, err := r.template(ctx, infra)
	if err != nil || template == nil {
		return unknownImage, err
	}
	spec, _, err := unstructured.NestedFieldNoCopy(template.Object, "spec", "template", "spec")
	if err != nil || nameOf(spec, paths, m.Spec.Version) != name {
		return unknownImage, nil //nolint:nilerr // a template without a spec tells nothing
	}
	return name, nil
}

// updating reports whether Cluster API updates an object in place. It says so at the infrastructure machine first, together with
// the change.
func updating(o client.Object) bool {
	_, yes := o.GetAnnotations()[clusterv1.UpdateInProgressAnnotation]
	return yes
}

// template returns the template from which Cluster API has made an infrastructure machine, or nil.
func (r *Recorder) template(ctx context.Context, infra *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := infra.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	kind := schema.ParseGroupKind(infra.GetAnnotations()[clusterv1.TemplateClonedFromGroupKindAnnotation])
	if name == "" || kind.Group != infra.GroupVersionKind().Group || kind.Kind != infra.GetKind()+"Template" {
		return nil, nil //nolint:nilnil // not every machine was made from a template
	}
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: name}
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Live, ref, infra.GetNamespace())
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it is gone
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return template, nil
}

// write notes the image at a Machine. If the Machine has changed since it was read it is looked at again.
func (r *Recorder) write(ctx context.Context, m *clusterv1.Machine, booted string) (ctrl.Result, error) {
	changed := m.DeepCopy() // what a cache has is not to be changed
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[refitv1.BootedImageAnnotation] = booted
	patch := client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, changed, patch)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache is behind
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("note at Machine %s from which image it has booted: %w", client.ObjectKeyFromObject(m), err)
	}
	return ctrl.Result{}, nil
}
