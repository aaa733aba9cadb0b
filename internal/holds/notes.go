package holds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/shard"
)

// HeldAnnotation on a Cluster, a control plane or a MachineDeployment is where refit's leader notes which of its Machines are held, and by
// whom, for the admission policy that warns those who edit it: an API server answers by what it has, without asking anybody.
const HeldAnnotation = "capi-refit.dev/held"

const (
	// notesEvery is how often the leases of a workload cluster are looked at, which nothing watches, while updates are under way there or something is held.
	// Where nothing is, they are at each resync.
	notesEvery = time.Minute
	// notesAtOnce is how many Clusters are read at the same time, and notesTimeout how long one that does not answer takes.
	notesAtOnce  = 10
	notesTimeout = 5 * time.Second
	// maxNoted and maxReason bound what a note says: how many Machines, and bytes of a reason.
	maxNoted, maxReason = 10, 100
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get;list;watch;patch

// Notes notes at what owns Machines which of them are held. It runs in the leader only.
type Notes struct {
	// Client reads from a cache.
	Client    client.Client
	Workloads Workloads
	// LeaseNamespace is where node leases are; medik8s' if empty.
	LeaseNamespace string
	Clock          clock.Clock

	// leases are the holders that were found last, as map[string]string by the key of the Cluster.
	leases sync.Map
}

// SetupWithManager has the manager run it.
func (n *Notes) SetupWithManager(mgr ctrl.Manager) error {
	shard.Forget(mgr, &n.leases)
	created := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("held").For(&clusterv1.Cluster{}, created).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: clusterOf(o.(*clusterv1.Machine))}}
		}), builder.WithPredicates(holdChanged)).
		Watches(&refitv1.MachineUpdate{}, handler.Funcs{UpdateFunc: updateChanged}).
		WithOptions(controller.Options{MaxConcurrentReconciles: notesAtOnce}), n, &clusterv1.ClusterList{})
}

// updateChanged has a Cluster be looked at when an update finds its node held, and in a while when one begins.
func updateChanged(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	before, ok := e.ObjectOld.(*refitv1.MachineUpdate)
	after, ok2 := e.ObjectNew.(*refitv1.MachineUpdate)
	if !ok || !ok2 {
		return
	}
	req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: after.Namespace, Name: after.Labels[clusterv1.ClusterNameLabel]}}
	switch {
	case waitsForHolder(before) != waitsForHolder(after):
		queue.Add(req)
	case !underWay(before) && underWay(after):
		queue.AddAfter(req, notesEvery)
	}
}

// waitsForHolder reports whether somebody else has the node of an update.
func waitsForHolder(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseWaiting && (mu.Status.Reason == refitv1.ReasonHold || mu.Status.Reason == refitv1.ReasonLease)
}

// underWay reports whether an update has begun that has not ended, and no policy keeps it waiting.
func underWay(mu *refitv1.MachineUpdate) bool {
	switch mu.Status.Phase {
	case "", refitv1.PhaseSucceeded, refitv1.PhaseFailed:
		return false
	case refitv1.PhaseWaiting:
		return !slices.Contains([]string{refitv1.ReasonWindow, refitv1.ReasonBudget, refitv1.ReasonHealth}, mu.Status.Reason)
	default:
		return true
	}
}

// holdChanged passes changes of Machines that are held, or no longer.
var holdChanged = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false }, // its Cluster is looked at anyway
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetAnnotations()[refitv1.HoldAnnotation] != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return slices.ContainsFunc([]string{refitv1.HoldAnnotation, lease.HoldByAnnotation, lease.HoldReasonAnnotation}, func(name string) bool {
			return e.ObjectOld.GetAnnotations()[name] != e.ObjectNew.GetAnnotations()[name]
		})
	},
}

// Reconcile notes what is held of one Cluster.
func (n *Notes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cluster clusterv1.Cluster
	if err := n.Client.Get(ctx, req.NamespacedName, &cluster); err != nil {
		n.leases.Delete(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() || annotations.IsPaused(&cluster, &cluster) {
		return ctrl.Result{RequeueAfter: resync.Within(notesEvery)}, nil
	}
	var machines clusterv1.MachineList
	if err := n.Client.List(ctx, &machines, index.InCluster(cluster.Namespace, cluster.Name)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the Machines of Cluster %s: %w", req, err)
	}
	var deployments metav1.PartialObjectMetadataList
	deployments.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineDeploymentList"))
	if err := n.Client.List(ctx, &deployments, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the MachineDeployments of Cluster %s: %w", req, err)
	}
	var holders map[string]string
	if ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) { // else there is nobody to ask
		holders = n.holders(ctx, req.NamespacedName)
	}
	held := n.held(machines.Items, holders)
	notes := notesOf(&cluster, deployments.Items, machines.Items, held)
	var errs []error
	for _, o := range notes {
		errs = append(errs, n.write(ctx, o))
	}
	again, err := n.again(ctx, req.NamespacedName, len(held) > 0)
	if err := errors.Join(append(errs, err)...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// again returns when to look at a Cluster again.
func (n *Notes) again(ctx context.Context, cluster types.NamespacedName, held bool) (time.Duration, error) {
	if held {
		return resync.Within(notesEvery), nil
	}
	var updates refitv1.MachineUpdateList
	if err := n.Client.List(ctx, &updates, index.InCluster(cluster.Namespace, cluster.Name)); err != nil {
		return 0, fmt.Errorf("list the MachineUpdates of Cluster %s: %w", cluster, err)
	}
	if slices.ContainsFunc(updates.Items, func(mu refitv1.MachineUpdate) bool { return underWay(&mu) }) {
		return resync.Within(notesEvery), nil
	}
	return resync.In(), nil
}

// holders returns who holds the leases of nodes. Where a workload cluster can't be asked, it is who did when it could.
func (n *Notes) holders(ctx context.Context, cluster types.NamespacedName) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, notesTimeout)
	defer cancel()
	var holders map[string]string
	reached, err := n.Workloads.Get(ctx, cluster)
	if err == nil {
		holders, err = (&lease.Locker{Client: reached.Client, Namespace: n.LeaseNamespace, Clock: n.Clock}).Holders(ctx)
	}
	if err != nil {
		last, _ := n.leases.Load(cluster)
		holders, _ = last.(map[string]string)
		return holders
	}
	n.leases.Store(cluster, holders)
	return holders
}

// held returns by whom Machines are held, by their names, as people read it.
func (n *Notes) held(machines []clusterv1.Machine, holders map[string]string) map[string]string {
	held := map[string]string{}
	for i := range machines {
		m := &machines[i]
		if by := holderOf(m, n.Clock.Now()); by != "" {
			held[m.Name] = m.Name + " by " + by
		} else if by := holders[m.Status.NodeRef.Name]; by != "" {
			held[m.Name] = fmt.Sprintf("%s by %s, who has its node's lease", m.Name, cut(by))
		}
	}
	return held
}

// holderOf returns who holds a Machine by its annotations, until when and why, or "".
func holderOf(m *clusterv1.Machine, now time.Time) string {
	hold, held := lease.PersonsHoldOf(m)
	if !held || hold.Over(now) {
		return ""
	}
	text := cmp.Or(cut(hold.By), "somebody")
	if hold.Ends {
		text += " until " + hold.Until.UTC().Format(time.RFC3339)
	}
	if hold.Reason != "" {
		text += " (" + cut(hold.Reason) + ")"
	}
	return text
}

// cut returns what one line of a warning has room for.
func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + "…"
}

// note is what is to be noted at an object.
type note struct {
	object *metav1.PartialObjectMetadata
	text   string
}

// notesOf returns what is to be noted at a Cluster, its MachineDeployments and its control plane. Of control planes there are kinds that
// refit does not know, and it is their Machines that say which.
func notesOf(cluster *clusterv1.Cluster, deployments []metav1.PartialObjectMetadata, machines []clusterv1.Machine, held map[string]string) []note {
	at := &metav1.PartialObjectMetadata{ObjectMeta: *cluster.ObjectMeta.DeepCopy()}
	at.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	notes := []note{{at, textOf(machines, held, func(*clusterv1.Machine) bool { return true })}}
	for i := range deployments {
		md := deployments[i].DeepCopy()
		md.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineDeployment"))
		notes = append(notes, note{md, textOf(machines, held, func(m *clusterv1.Machine) bool { return m.Labels[clusterv1.MachineDeploymentNameLabel] == md.Name })})
	}
	controlPlanes := map[types.UID]bool{}
	for i := range machines {
		owner := metav1.GetControllerOf(&machines[i])
		if _, ok := machines[i].Labels[clusterv1.MachineControlPlaneLabel]; !ok || owner == nil || controlPlanes[owner.UID] {
			continue
		}
		controlPlanes[owner.UID] = true
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: owner.Name}}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		notes = append(notes, note{o, textOf(machines, held, func(m *clusterv1.Machine) bool {
			of := metav1.GetControllerOf(m)
			return of != nil && of.UID == owner.UID
		})})
	}
	return notes
}

func textOf(machines []clusterv1.Machine, held map[string]string, belongs func(*clusterv1.Machine) bool) string {
	var texts []string
	for i := range machines {
		if text := held[machines[i].Name]; text != "" && belongs(&machines[i]) {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	if more := len(texts) - maxNoted; more > 0 {
		texts = append(texts[:maxNoted], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// write notes at an object what is held of it, if it does not say so already.
func (n *Notes) write(ctx context.Context, to note) error {
	o := to.object
	if o.UID == "" { // a control plane, of which only the name is known
		if err := n.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
		o = o.DeepCopy()
	}
	before := o.DeepCopy()
	if delete(o.Annotations, HeldAnnotation); to.text != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, HeldAnnotation, to.text)
	}
	if before.Annotations[HeldAnnotation] == to.text {
		return nil
	}
	err := n.Client.Patch(ctx, o, client.MergeFrom(before)) // it is refit's annotation alone
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("note at %s %s what is held of it: %w", o.Kind, client.ObjectKeyFromObject(o), err)
	}
	return nil
}
