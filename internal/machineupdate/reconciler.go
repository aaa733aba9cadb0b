package machineupdate

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/revision"
	"github.com/capi-refit/refit/internal/session"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/tracing"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=machineupdates,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=capi-refit.dev,resources=machineupdates/status,verbs=update
// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodeaccesses,verbs=get;list;watch
// +kubebuilder:rbac:groups=capi-refit.dev,resources=knownhosts,verbs=get;create;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters;machinedrainrules,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io;infrastructure.cluster.x-k8s.io,resources=*,verbs=get;list
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconciler makes the updates that MachineUpdates ask for. It runs in the leader only, or in who holds the shard.
type Reconciler struct {
	// Client reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Disruptions says what changes take on a node, and has the updaters that follow from that.
	Disruptions Disruptions
	// Releases says where another version of Kubernetes comes from. Nil: nowhere.
	Releases Releases
	// Registered has the extensions that are updaters, too. Nil: there are none.
	Registered Registered
	// Judge asks them, too, whether what is to be rolled back can be made in place. Nil: they are not asked.
	Judge Judge
	// OnConflict says what to do with a file that was changed on the node as well.
	OnConflict node.ConflictPolicy
	Dialer     remote.Dialer
	Agents     *remote.Agents
	Recorder   events.EventRecorder
	Clock      clock.WithTicker
	// Workloads reaches the clusters that the machines are nodes of.
	Workloads Workloads
	// Slots say how many nodes of a cluster may be disturbed at once.
	Slots *slots.Slots
	// Observer knows since when the leases of others have not changed.
	Observer *lease.Observer
	// LeaseNamespace is where node leases are; medik8s' if empty.
	LeaseNamespace string
	// RebootTimeout is how long a node may take to come back.
	RebootTimeout time.Duration
	// ConfirmRetry is how long to wait before the next login, where a node waits for one and it has failed. 0: five seconds. It doubles.
	ConfirmRetry time.Duration
	// Self is the pod that refit runs in, if it runs in one.
	Self types.NamespacedName
	// HandOver has another instance go on with what would take this one's pod away.
	HandOver func(why string)
	// Gate lets updates start.
	Gate Gate
	// Audit records which overrides have let updates start. Nil: nobody does.
	Audit   AuditLog
	Metrics *Metrics
	// Instance is the name of this server, shown in the MachineUpdates that it works on. No two starts of it have the same.
	Instance string

	// WatchSecrets has a changed Secret wake the updates that may wait for it. It takes the right to list and watch all Secrets; without it
	// such updates look again by themselves.
	WatchSecrets bool

	// Sessions have what talks to nodes and workload clusters run beside the queue, whose workers it does not keep then. Nil: it keeps them.
	Sessions *session.Queue

	wakes wakes

	// Shards are those that this process works on; nil: all.
	Shards *shard.Shards

	// Arrivals know the policies that there are.
	Arrivals []Arrivals
	// Announcers tell when policies and sources say something else, Windows when policies about windows and budgets do, and Health when a health gate
	// answers something else.
	Announcers []Announcer
	Windows    Edits
	Health     Announcer
	// Budgets finds whom a budget lets start that was freed. Nil: each looks by itself.
	Budgets Budgets
	// freed are the namespaces in which one may have been, a moment ago.
	freed sync.Map

	// misstep, if not nil, is told of changes of phase that there are not, and enters of all that are shown, also of those that are not written.
	misstep func(from, to refitv1.Phase)
	enters  func(from, to refitv1.Phase)
	// arrived has the UIDs of Clusters whose policies are known.
	arrived sync.Map
	sweeps  sync.Map // of *sweepState, by cluster
	// orphans is since when this process tries to tidy up after MachineUpdates whose Machines are gone, by the key of each.
	orphans sync.Map // of time.Time
	// stalled is since when, as this process knows, updates wait whose nodes are drained and not changed, by the key of each.
	stalled sync.Map // of time.Time
	// endings are those that were written, or may have been, and not told yet, by the key of each MachineUpdate.
	endings sync.Map // of ending
	// lost is since when, as this process knows, updates have waited whose nodes may be half changed and can't be worked on, by the key of each.
	lost sync.Map // of time.Time
	// silent is since when, as this process knows, updates that have begun nothing wait for a node or a workload cluster that does not answer.
	silent sync.Map // of time.Time
	// dark are the updates whose nodes are knocked at.
	dark sync.Map // of darkNode
	// firstLooks are when this process looks at updates for the first time, by the key of each; zero: it has.
	firstLooks sync.Map // of time.Time
	// plannedBy has the revisions of the policies that plans were made by, by the keys of MachineUpdates.
	plannedBy sync.Map

	// late are the updates that have ended and lack conditions.
	late late

	// Tracer exports how updates have gone. Nil: nothing is.
	Tracer *tracing.Tracer
	// unexported are the spans of statuses that may have been written, by the key of each MachineUpdate.
	unexported sync.Map // of keptSpans
}

// AuditLog is what is kept for whoever asks later.
type AuditLog interface {
	Append(e audit.Entry) (audit.Entry, error)
}

// Skip is told of an update that another process works on.
func (r *Reconciler) Skip(req ctrl.Request) { r.Sessions.Skip(req) }

// byUpdate are what is known of updates, by the key of each.
func (r *Reconciler) byUpdate() []*sync.Map {
	return []*sync.Map{&r.plannedBy, &r.orphans, &r.stalled, &r.lost, &r.silent, &r.endings, &r.unexported, &r.firstLooks, &r.dark}
}

// Reconcile brings one update as far as it can be brought now, or has a session do so.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r.Sessions.Do(ctx, req, r.reconcile)
}

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) { //nolint:cyclop // one reason to end early after the other
	var cached refitv1.MachineUpdate
	if err := r.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		for _, known := range r.byUpdate() {
			known.Delete(req.NamespacedName)
		}
		r.late.done(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, untold := r.endings.Load(req.NamespacedName)
	if !cached.Behind() && finished(&cached) && cached.DeletionTimestamp.IsZero() && !hasFinalizer(&cached) && !untold {
		r.plannedBy.Delete(req.NamespacedName)
		return r.showEnded(ctx, &cached)
	}
	if result, ok := r.stillHeld(ctx, &cached); ok && !cached.Behind() && r.pauseToShow(ctx, &cached) == nil {
		return result, nil
	}
	if result, ok, err := r.heldAtOnce(ctx, &cached); ok {
		return result, err
	}
	if after := r.takenOver(ctx, &cached); after > 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	result, only, knocked := r.knocks(ctx, req, &cached)
	if only {
		return result, nil
	}
	// From here on nothing is decided on what a cache says, but for policies and what they select: to take the lease, and to ask the node, are acts.
	var mu refitv1.MachineUpdate
	if err := r.Live.Get(ctx, req.NamespacedName, &mu); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if beingMoved(&mu) {
		return ctrl.Result{}, nil
	}
	u := &update{Reconciler: r, mu: &mu, writtenAt: r.Clock.Now(), knocked: knocked}
	if err := u.restore(ctx); err != nil {
		return ctrl.Result{}, err
	}
	u.tellUntold(ctx) // what has ended without an answer
	u.exportKept()
	if mu.Status.Phase == refitv1.PhaseWaiting {
		u.waitedFor = mu.Status.Reason
	}
	u.queued = r.Sessions != nil
	result, err := u.advance(ctx)
	if u.leaves {
		began := r.Sessions.Begin(ctx, u.clusterKey(), req, u.started() || mu.Status.ApplyingSince != nil, func(ctx context.Context) (ctrl.Result, error) {
			u.queued, u.leaves = false, false
			return u.advance(ctx)
		})
		if !began { // it may wait for long
			err = ignoreConflict(u.told(ctx))
		}
	}
	return result, err
}

// advance has an update go on, or go.
func (u *update) advance(ctx context.Context) (ctrl.Result, error) {
	result, err := u.runAndDisconnect(ctx)
	if apierrors.IsConflict(err) || halfWritten(err) {
		// Somebody else has written: other specs, or another leader. Look again.
		return ctrl.Result{RequeueAfter: time.Second}, u.releaseOvertaken(ctx)
	}
	return result, err
}

func (u *update) runAndDisconnect(ctx context.Context) (ctrl.Result, error) {
	defer u.stopRenewal()
	defer u.disconnect()
	result, err := u.run(ctx)
	if err == nil && !u.leaves {
		err = u.told(ctx)
	}
	return result, err
}

// ignoreConflict returns nil for a conflict: whoever has written has the MachineUpdate be looked at again.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || halfWritten(err) {
		return nil
	}
	return err
}

// finished reports whether there is nothing to do until specs change or somebody asks for another try.
func finished(mu *refitv1.MachineUpdate) bool {
	if mu.Status.ObservedDigest != mu.Spec.Digest {
		return false
	}
	switch mu.Status.Phase {
	case refitv1.PhaseSucceeded:
		return true
	case refitv1.PhaseFailed:
		return !retryAsked(mu) && !abandonAsked(mu) && !rollbackAsked(mu)
	default:
		return false
	}
}

func retryAsked(mu *refitv1.MachineUpdate) bool {
	asked := mu.RetryRequest()
	return asked != "" && asked != mu.Status.ObservedRetry
}

// abandonAsked reports whether a person has acknowledged that the update has failed, be it in the try before this one.
func abandonAsked(mu *refitv1.MachineUpdate) bool {
	asked := mu.AbandonRequest()
	return asked != "" && asked != mu.Status.ObservedAbandon && mu.Abandonable()
}

// machine returns the Machine, and what the update waits for before its node may be touched; without the Machine if that is another
// one. When there is no Machine it returns neither: the MachineUpdate goes with its Machine.
func (u *update) machine(ctx context.Context) (*clusterv1.Machine, *wait, error) {
	key := client.ObjectKeyFromObject(u.mu)
	machine, spec, err := readMachine(ctx, u.Live, key)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	u.spec = spec
	if !metav1.IsControlledBy(u.mu, machine) {
		return nil, &wait{reason: refitv1.ReasonDeleting, message: "the Machine was made again; this MachineUpdate belongs to the one before it and is about to go"}, nil
	}
	if !machine.DeletionTimestamp.IsZero() && !beingMoved(machine) {
		return machine, machineDeleted(), nil
	}
	var cluster clusterv1.Cluster
	clusterKey := clusterOf(machine)
	if err := u.Live.Get(ctx, clusterKey, &cluster); err != nil {
		return machine, nil, fmt.Errorf("read Cluster %s: %w", clusterKey, err)
	}
	u.circumstances.machine, u.circumstances.cluster = revision.Of(machine), revision.Of(&cluster)
	u.read, u.readAt = &lease.Facts{Machine: machine, Cluster: &cluster}, u.Clock.Now()
	u.marks.Machine = protection.MetadataOf(clusterv1.GroupVersion.WithKind("Machine"), &machine.ObjectMeta)
	u.pause = ptr.To(pauseOf(&cluster, machine, u.mu))
	w, err := u.paused(ctx, &cluster, machine)
	if w == nil && err == nil {
		w = taken(machine)
	}
	return machine, w, err
}

func machineDeleted() *wait {
	return &wait{reason: refitv1.ReasonDeleting, message: "the Machine is being deleted; its node is not touched any more", releases: true}
}
