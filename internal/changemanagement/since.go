package changemanagement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters;machinedeployments,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=patch

// lookAgain is how often control planes are looked at, which nothing watches.
const lookAgain = time.Minute

// Since notes at objects since when their permissive-until has its value. What the API server tells of that is no more than a bound: it
// goes with the manager, and moves when the same manager changes anything else. It runs in the leader only.
type Since struct {
	// Client reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live  client.Reader
	Clock clock.PassiveClock
}

// SetupWithManager has the manager run it.
func (s *Since) SetupWithManager(mgr ctrl.Manager) error {
	is := func(o client.Object) bool { return unnoted(o) }
	overridden := builder.WithPredicates(predicate.NewPredicateFuncs(is))
	toNote := func(o client.Object) bool {
		_, controlPlane := o.GetLabels()[clusterv1.MachineControlPlaneLabel]
		return controlPlane || unnoted(o)
	}
	machines := builder.WithPredicates(predicate.NewPredicateFuncs(toNote))
	deployments := &metav1.PartialObjectMetadataList{}
	deployments.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineDeploymentList"))
	return errors.Join(
		shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("permissive-since-cluster").For(&clusterv1.Cluster{}, overridden), s.of("Cluster"), &clusterv1.ClusterList{}, is),
		shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("permissive-since-clusterchangemanagementpolicy").For(&refitv1.ClusterChangeManagementPolicy{}, overridden),
			reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
				return s.note(ctx, refitv1.GroupVersion.WithKind(clusterKind), req.NamespacedName)
			}), &refitv1.ClusterChangeManagementPolicyList{}, is),
		shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("permissive-since-machinedeployment").
			For(&clusterv1.MachineDeployment{}, builder.OnlyMetadata, overridden), s.of("MachineDeployment"), deployments, is),
		shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("permissive-since-machine").For(&clusterv1.Machine{}, machines), reconcile.Func(s.machine), &clusterv1.MachineList{}, toNote),
	)
}

// of notes at objects of a kind of Cluster API's.
func (s *Since) of(kind string) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		return s.note(ctx, clusterv1.GroupVersion.WithKind(kind), req.NamespacedName)
	}
}

// machine notes at a Machine, and at the control plane that has made it: of those there are kinds that refit does not know.
func (s *Since) machine(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m clusterv1.Machine
	if err := s.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if unnoted(&m) {
		if result, err := s.note(ctx, clusterv1.GroupVersion.WithKind("Machine"), req.NamespacedName); err != nil || !result.IsZero() {
			return result, err
		}
	}
	maker := ownerOf(&m)
	if !util.IsControlPlaneMachine(&m) || maker.name == "" {
		return ctrl.Result{}, nil
	}
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: maker.apiVersion, Kind: maker.kind}}
	key := client.ObjectKey{Namespace: m.Namespace, Name: maker.name}
	if err := client.IgnoreNotFound(s.Client.Get(ctx, key, o)); err != nil {
		return ctrl.Result{}, fmt.Errorf("read %s %s: %w", maker.kind, key, err)
	}
	if unnoted(o) {
		if result, err := s.note(ctx, schema.FromAPIVersionAndKind(maker.apiVersion, maker.kind), key); err != nil || !result.IsZero() {
			return result, err
		}
	}
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

// note notes since when an object has its override, or takes the note away with it.
func (s *Since) note(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (ctrl.Result, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	if err := s.Live.Get(ctx, key, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !unnoted(o) {
		return ctrl.Result{}, nil
	}
	before := o.DeepCopy()
	if value, set := o.Annotations[refitv1.PermissiveUntilAnnotation]; set {
		since := s.Clock.Now()
		if at := setAt(o, refitv1.PermissiveUntilAnnotation); !at.IsZero() && at.Before(since) {
			since = at
		}
		o.Annotations[refitv1.PermissiveSinceAnnotation] = since.UTC().Format(time.RFC3339) + " " + value
	} else {
		delete(o.Annotations, refitv1.PermissiveSinceAnnotation)
	}
	err := s.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("note at %s %s since when %s is there: %w", gvk.Kind, key, refitv1.PermissiveUntilAnnotation, err)
	}
	return ctrl.Result{}, nil
}

// unnoted reports whether it is still to be noted since when an object has its override, or a note is left of one that is gone.
func unnoted(o metav1.Object) bool {
	all := o.GetAnnotations()
	if _, set := all[refitv1.PermissiveUntilAnnotation]; set {
		return sinceOf(all).IsZero()
	}
	_, left := all[refitv1.PermissiveSinceAnnotation]
	return left
}

// sinceOf returns since when permissive-until has the value that it has, or zero if that is not noted.
func sinceOf(all map[string]string) time.Time {
	text, of, _ := strings.Cut(all[refitv1.PermissiveSinceAnnotation], " ")
	since, err := time.Parse(time.RFC3339, text)
	if value, set := all[refitv1.PermissiveUntilAnnotation]; err != nil || !set || of != value {
		return time.Time{}
	}
	return since
}

// setAt returns when an annotation had its value at the latest, or zero. Who sets the same value later owns it, too, so that the first
// one counts.
func setAt(obj metav1.Object, annotation string) time.Time {
	var first time.Time
	field := []byte(`"f:` + annotation + `"`)
	for _, m := range obj.GetManagedFields() {
		if m.Time != nil && m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), field) && (first.IsZero() || m.Time.Time.Before(first)) {
			first = m.Time.Time
		}
	}
	return first
}
