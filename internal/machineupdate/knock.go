package machineupdate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

const (
	// knocksFor is for how long after a look at an update whose node is dark it is only knocked at the node.
	knocksFor = 10 * time.Minute
	// early is how much earlier than it was to be looked at an update comes that something has woken. Timers are not early.
	early = 100 * time.Millisecond
	// soon is when an update is looked at whose node answers.
	soon = time.Millisecond
)

// darkNode is what was known of an update when its node did not answer. A look takes the lease of the node, and more than a dozen requests, to find out
// that it still does not. As long as nobody wants anything else of the update it is knocked at the node first.
type darkNode struct {
	around *circumstances // since it was knocked first; before, whatever changes has the update looked at
	target remote.Target  // without credentials
	due    time.Time      // when it is to be tried again
	until  time.Time      // when it is to be looked at again
}

// circumstances are what of an update and around it has a say in what is done about it before its node answers, as caches have it.
type circumstances struct {
	of                               types.NamespacedName // the Cluster
	update, machine, cluster, access string               // UIDs and resourceVersions
}

// knows returns what is known of an update that policies let go; false if that can't be told, or they do not.
func (r *Reconciler) knows(ctx context.Context, mu *refitv1.MachineUpdate) (_ circumstances, ok bool) {
	var machine clusterv1.Machine
	var cluster clusterv1.Cluster
	if r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine) != nil || r.Client.Get(ctx, clusterOf(&machine), &cluster) != nil {
		return circumstances{}, false
	}
	access, err := nodeaccess.Find(ctx, r.Client, &machine)
	if err != nil {
		return circumstances{}, false
	}
	// Where policies hold the update back it is shown to wait for them.
	if d, err := r.Gate.Ask(ctx, &machine, mu); err != nil || !d.Open {
		return circumstances{}, false
	}
	revision := func(obj client.Object) string { return string(obj.GetUID()) + "/" + obj.GetResourceVersion() }
	return circumstances{
		of: client.ObjectKeyFromObject(&cluster), update: revision(mu), machine: revision(&machine), cluster: revision(&cluster), access: revision(access),
	}, true
}

// noteDark notes that the node did not answer, and in how long it is to be tried again. A node behind a jump host can't be knocked at.
func (u *update) noteDark(w *wait, after time.Duration) {
	if w.reason != refitv1.ReasonUnreachable || w.also != "" || u.login.access == nil || u.login.access.Target.Jump != nil {
		return
	}
	t, now := u.login.access.Target, u.Clock.Now()
	u.dark.Store(client.ObjectKeyFromObject(u.mu), darkNode{
		target: remote.Target{Addresses: t.Addresses, User: t.User, Within: t.Within, Timeouts: t.Timeouts},
		due:    now.Add(after), until: now.Add(knocksFor),
	})
}

// knocks reports whether it is only knocked at the node of an update for now: it did not answer, it is time to try again, and nobody has changed
// anything.
func (r *Reconciler) knocks(ctx context.Context, req ctrl.Request, cached *refitv1.MachineUpdate) (result ctrl.Result, knocks bool) {
	noted, was := r.dark.LoadAndDelete(req.NamespacedName)
	knocker, can := r.Dialer.(remote.Knocker)
	if !was || !can {
		return ctrl.Result{}, false
	}
	n, now := noted.(darkNode), r.Clock.Now()
	if now.Before(n.due.Add(-early)) || !now.Before(n.until) || cached.Status.Reason != refitv1.ReasonUnreachable || !r.isSilent(ctx, cached) {
		return ctrl.Result{}, false
	}
	is, ok := r.knows(ctx, cached)
	if !ok || n.around != nil && *n.around != is {
		return ctrl.Result{}, false
	}
	n.around = &is
	r.dark.Store(req.NamespacedName, n)
	knock := func(ctx context.Context) (ctrl.Result, error) {
		return r.knock(ctx, knocker, req, cached.Status.PhaseSince.Time), nil
	}
	if r.Sessions == nil {
		result, _ = knock(ctx)
		return result, true
	}
	r.Sessions.Begin(ctx, is.of, req, false, knock) // or it comes again when there is a place
	return ctrl.Result{}, true
}

// knock knocks at a node that has been silent for some time, and has its update be looked at if it answers.
func (r *Reconciler) knock(ctx context.Context, knocker remote.Knocker, req ctrl.Request, since time.Time) ctrl.Result {
	noted, was := r.dark.LoadAndDelete(req.NamespacedName)
	if !was {
		return ctrl.Result{RequeueAfter: soon}
	}
	n := noted.(darkNode)
	if knocker.Knock(ctx, n.target) == nil {
		return ctrl.Result{RequeueAfter: soon}
	}
	after := askSilent(r.Clock.Since(since))
	n.due = r.Clock.Now().Add(after)
	r.dark.Store(req.NamespacedName, n)
	return ctrl.Result{RequeueAfter: after}
}
