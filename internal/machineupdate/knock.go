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
	"github.com/capi-refit/refit/internal/revision"
)

const (
	// knocksFor is for how long after a look at an update whose node is dark it is only knocked at the node, at most.
	knocksFor = 10 * time.Minute
	// early is how much earlier than it was to be tried again an update comes that something has woken, whatever that is. Timers are not early.
	early = 100 * time.Millisecond
	// soon is when an update is looked at whose node answers.
	soon = time.Millisecond
)

// darkNode is what was known of an update when its node did not answer. A look takes the lease of the node, and more than a dozen requests, to find out
// that it still does not. As long as nobody wants anything else of the update it is knocked at the node first.
type darkNode struct {
	around circumstances // as that look has read them
	target remote.Target // without credentials
	due    time.Time     // when it is to be tried again
	until  time.Time     // when it is to be looked at again
	// answered reports that the last knock was answered, so that the update is looked at.
	answered bool
}

// circumstances are what of an update and around it has a say in what is done about it before its node answers.
type circumstances struct{ update, machine, cluster, access revision.Revision }

// around returns the circumstances of an update that policies let go, as caches have them; false if they do not, or that can't be told.
func (r *Reconciler) around(ctx context.Context, mu *refitv1.MachineUpdate) (_ circumstances, of types.NamespacedName, ok bool) {
	var machine clusterv1.Machine
	var cluster clusterv1.Cluster
	if r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine) != nil || r.Client.Get(ctx, clusterOf(&machine), &cluster) != nil {
		return circumstances{}, of, false
	}
	access, err := nodeaccess.Find(ctx, r.Client, &machine)
	if err != nil {
		return circumstances{}, of, false
	}
	// Where policies hold the update back it is shown to wait for them, and nobody connects to its node.
	if d, err := r.Gate.Ask(ctx, &machine, mu); err != nil || !d.Open {
		return circumstances{}, of, false
	}
	return circumstances{update: revision.Of(mu), machine: revision.Of(&machine), cluster: revision.Of(&cluster), access: revision.Of(access)}, clusterOf(&machine), true
}

// noteDark notes that the node did not answer, and in how long it is to be tried again. It is not knocked at a node behind a jump host, which takes credentials, nor
// after a look at one that had answered a knock: its server may turn away who has just been there without a login.
func (u *update) noteDark(w *wait, after time.Duration) {
	if u.knocked || w.reason != refitv1.ReasonUnreachable || w.also != "" || u.login.access == nil || u.login.access.Target.Jump != nil {
		return
	}
	t, now := u.login.access.Target, u.Clock.Now()
	u.circumstances.update = revision.Of(u.mu)
	u.dark.Store(client.ObjectKeyFromObject(u.mu), darkNode{
		around: u.circumstances,
		target: remote.Target{Addresses: t.Addresses, User: t.User, Within: t.Within, Timeouts: t.Timeouts},
		due:    now.Add(after), until: now.Add(knocksFor),
	})
}

// knocks has it knocked at the node of an update, and reports whether that is all for now: the node did not answer, it is time to try again, and nothing
// is otherwise than it was. If not, it reports whether the node has just been knocked at.
func (r *Reconciler) knocks(ctx context.Context, req ctrl.Request, cached *refitv1.MachineUpdate) (result ctrl.Result, only, knocked bool) {
	noted, was := r.dark.LoadAndDelete(req.NamespacedName)
	knocker, can := r.Dialer.(remote.Knocker)
	if !was || !can {
		return ctrl.Result{}, false, false
	}
	n, now := noted.(darkNode), r.Clock.Now()
	if n.answered || now.Before(n.due.Add(-early)) || !now.Before(n.until) || !r.isSilent(ctx, cached) {
		return ctrl.Result{}, false, n.answered
	}
	is, of, ok := r.around(ctx, cached)
	if !ok || n.around != is {
		return ctrl.Result{}, false, false
	}
	r.dark.Store(req.NamespacedName, n)
	knock := func(ctx context.Context) (ctrl.Result, error) {
		return r.knock(ctx, knocker, req, cached.Status.PhaseSince.Time), nil
	}
	if r.Sessions == nil {
		result, _ = knock(ctx)
		return result, true, false
	}
	r.Sessions.Begin(ctx, of, req, false, knock) // or it comes again when there is a place
	return ctrl.Result{}, true, false
}

// knock knocks at a node that has been silent for some time, and has its update be looked at if it answers.
func (r *Reconciler) knock(ctx context.Context, knocker remote.Knocker, req ctrl.Request, since time.Time) ctrl.Result {
	noted, was := r.dark.LoadAndDelete(req.NamespacedName)
	if !was {
		return ctrl.Result{RequeueAfter: soon}
	}
	n := noted.(darkNode)
	n.answered = knocker.Knock(ctx, n.target) == nil
	now := r.Clock.Now()
	after := min(askSilent(now.Sub(since)), n.until.Sub(now))
	if n.answered || after <= 0 {
		after = soon
	}
	n.due = now.Add(after)
	r.dark.Store(req.NamespacedName, n)
	return ctrl.Result{RequeueAfter: after}
}
