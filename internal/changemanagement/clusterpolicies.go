package changemanagement

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Installed is the namespace in which refit is installed by its manifests, for those who ask without being in it.
const Installed = "refit-system"

// newCluster returns the reader of policies of the platform. They are read again when their annotations change, which open or close them.
func (p *Policies) newCluster(cached client.Reader) *policykind.Reader[*refitv1.ClusterChangeManagementPolicy, *Policy] {
	return policykind.NewReader(cached, policykind.Kind[*refitv1.ClusterChangeManagementPolicy, *Policy]{
		Name: clusterKind, Plural: "ClusterChangeManagementPolicies",
		New:  func() *refitv1.ClusterChangeManagementPolicy { return &refitv1.ClusterChangeManagementPolicy{} },
		List: func() client.ObjectList { return &refitv1.ClusterChangeManagementPolicyList{} },
		Read: func(ctx context.Context, policy *refitv1.ClusterChangeManagementPolicy) *Policy {
			return p.withCalendars(ctx, p.Namespace, func(c schedule.Calendars) (*Policy, error) { return CompileCluster(policy, c) })
		},
		Again: func(policy *refitv1.ClusterChangeManagementPolicy) time.Duration {
			return calendarsAgain(&policy.Spec.ChangeManagementPolicySpec)
		},
		Annotated: true,
		Same: func(before, after *Policy) bool {
			return before.calendars == after.calendars && slices.Equal(before.Own, after.Own)
		},
	})
}

// NamespaceMetadata returns an empty Namespace, of which only the metadata is read.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return n
}

// relabeled passes on that the labels of a Namespace are others. A new one has no updates that wait.
var relabeled = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
}

// SetupWithManager has the manager keep the policies of both kinds up to date, on every replica.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	namespaces := ctrl.NewControllerManagedBy(mgr).Named("changemanagement-namespace").
		For(NamespaceMetadata(), builder.OnlyMetadata, builder.WithPredicates(relabeled)).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(reconcile.Func(p.relabel))
	return errors.Join(p.Reader.SetupWithManager(mgr), p.Cluster.SetupWithManager(mgr), namespaces)
}

// relabel tells that other policies of the platform may be for a namespace.
func (p *Policies) relabel(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
	for _, f := range p.onChange {
		f(req.Name, func(labels.Set) bool { return true })
	}
	return ctrl.Result{}, nil
}

// OnChange has f called when policies say something else for a namespace, or with "" for all of them, and whoever asks now is answered by that. concerns
// reports whether that may be for Machines of a Cluster with labels. It is for the time before the manager starts, and f is not to block.
func (p *Policies) OnChange(f func(namespace string, concerns func(cluster labels.Set) bool)) {
	p.onChange = append(p.onChange, f)
	edited := func(namespace string, versions []*Policy) {
		f(namespace, func(cluster labels.Set) bool {
			return slices.ContainsFunc(versions, func(v *Policy) bool { return v.Selector.Cluster(cluster) })
		})
	}
	p.OnEdit(edited)
	p.Cluster.OnEdit(edited)
}

// Prime reads all policies.
func (p *Policies) Prime(ctx context.Context) error {
	return errors.Join(p.Reader.Prime(ctx), p.Cluster.Prime(ctx))
}

// Ready returns an error until the policies of both kinds were read.
func (p *Policies) Ready() error { return errors.Join(p.Reader.Ready(), p.Cluster.Ready()) }

// All returns what was read, by namespace, those of the platform under ""; nothing before all was. It is shared and is not to be changed.
func (p *Policies) All() map[string][]*Policy {
	all, cluster := p.Reader.All(), p.Cluster.All()
	if all == nil || cluster == nil {
		return nil
	}
	if len(cluster) == 0 {
		return all
	}
	all = maps.Clone(all)
	maps.Copy(all, cluster)
	return all
}

// In returns the policies that are for a namespace, those of the platform first, or an error until they were read.
func (p *Policies) In(namespace string) ([]*Policy, error) {
	own, err := p.Reader.In(namespace)
	if err != nil {
		return nil, err
	}
	cluster, err := p.clusterIn(namespace)
	if err != nil || len(cluster) == 0 {
		return own, err
	}
	return append(cluster, own...), nil
}

// clusterIn returns the policies of the platform that are for a namespace. One whose labels can't be read has all of them.
func (p *Policies) clusterIn(namespace string) ([]*Policy, error) {
	all, err := p.Cluster.In("")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var some []*Policy
	var of *namespaceLabels
	for _, one := range all {
		if !one.Namespaces.Empty() && of == nil {
			of = p.labelsOf(namespace)
		}
		if one.Namespaces.Empty() || of.match(one.Namespaces) {
			some = append(some, one)
		}
	}
	return some, nil
}

// namespaceLabels are the labels of a Namespace, if they are known.
type namespaceLabels struct {
	labels labels.Set
	known  bool
}

func (l *namespaceLabels) match(s labels.Selector) bool { return !l.known || s.Matches(l.labels) }

// labelsOf reads the labels of a Namespace from a cache.
func (p *Policies) labelsOf(namespace string) *namespaceLabels {
	n := NamespaceMetadata()
	err := p.cached.Get(context.Background(), types.NamespacedName{Name: namespace}, n, client.UnsafeDisableDeepCopy)
	return &namespaceLabels{n.Labels, err == nil}
}

// Select returns the policies that select a Machine, those of the platform first. An error means that they are not known.
func (p *Policies) Select(s *Candidate) ([]*Policy, error) {
	own, err := p.SelectingIn(s.ClusterLabels, s.Role, s.Subject)
	if err != nil {
		return nil, err
	}
	cluster, err := p.clusterIn(s.Namespace)
	if err != nil || len(cluster) == 0 {
		return own, err
	}
	some := slices.DeleteFunc(cluster, func(one *Policy) bool { return !one.Selects(s) })
	return append(some, own...), nil
}

// Any reports whether there is a policy for a namespace at all.
func (p *Policies) Any(namespace string) (bool, error) {
	all, err := p.In(namespace)
	return len(all) > 0, err
}

// Missing returns the policies for a namespace that the API server has and that are not known here as they are there, by kind and name.
func (p *Policies) Missing(ctx context.Context, live client.Reader, namespace string) ([]string, error) {
	own, err := p.Reader.Missing(ctx, live, namespace)
	if err != nil {
		return nil, err
	}
	cluster, err := p.Cluster.Missing(ctx, live, "")
	return append(own, cluster...), err
}
