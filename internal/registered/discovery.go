package registered

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/shard"
)

const (
	// discoverAgain is when an extension is asked again for its handlers, and retryDiscovery when it could not be asked, or lacks one.
	discoverAgain  = 2 * time.Minute
	retryDiscovery = 10 * time.Second
)

// Discovery asks extensions for their handlers, and keeps them in the status of each registration. Handlers that were discovered stay while an
// extension is away, or leaves them out: who asks it then learns that it is, and no machine is replaced because it claims nothing. Only another spec
// has them forgotten.
type Discovery struct {
	Client   client.Client
	Registry *Registry
}

// SetupWithManager has the manager run it.
func (d *Discovery) SetupWithManager(mgr ctrl.Manager) error {
	named := ctrl.NewControllerManagedBy(mgr).Named("updaterregistration").
		For(&refitv1.UpdaterRegistration{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	return shard.Complete(mgr, named, d, &refitv1.UpdaterRegistrationList{})
}

// Reconcile asks one extension.
func (d *Discovery) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var u refitv1.UpdaterRegistration
	if err := d.Client.Get(ctx, req.NamespacedName, &u); err != nil {
		if apierrors.IsNotFound(err) {
			d.Registry.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := u.Status.DeepCopy()
	handlers, err := d.ask(ctx, &u)
	again, ready := discoverAgain, metav1.Condition{
		Type: refitv1.UpdaterReady, Status: metav1.ConditionTrue, Reason: "Discovered", ObservedGeneration: u.Generation,
		Message: "its handlers are known, and asked",
	}
	switch {
	case err == nil && u.Status.ObservedGeneration == u.Generation:
		if missing := keepKnown(&u.Status.Handlers, handlers); len(missing) > 0 {
			again, ready.Status, ready.Reason = retryDiscovery, metav1.ConditionFalse, "HandlersMissing"
			ready.Message = fmt.Sprintf("it has had a handler for %s and names it no more; that is asked all the same, so that no machine is replaced for it; "+
				"if it is gone for good, change the spec of the UpdaterRegistration, and the handlers are discovered again", strings.Join(missing, " and "))
		}
	case err == nil:
		u.Status.Handlers = handlers
	case u.Status.ObservedGeneration != u.Generation:
		u.Status.Handlers = refitv1.UpdaterHandlers{}
		fallthrough
	default:
		again, ready.Status, ready.Reason, ready.Message = retryDiscovery, metav1.ConditionFalse, "NotDiscovered", Printable(err.Error())
	}
	if err := checkSelectors(&u.Spec); err != nil {
		ready.Status, ready.Reason = metav1.ConditionFalse, "InvalidSelector"
		ready.Message = Printable(err.Error()) + "; about machines that the other selectors match nothing is decided that refit's own updaters leave"
	}
	u.Status.ObservedGeneration = u.Generation
	meta.SetStatusCondition(&u.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before, &u.Status) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{RequeueAfter: again}, d.Client.Status().Update(ctx, &u)
}

// keepKnown takes over the handlers that were found. One that was known and was not found stays, and its hook is returned.
func keepKnown(known *refitv1.UpdaterHandlers, found refitv1.UpdaterHandlers) (missing []string) {
	for _, h := range []struct {
		hook  string
		known *string
		found string
	}{
		{CanUpdateMachine, &known.CanUpdateMachine, found.CanUpdateMachine},
		{CanUpdateMachineSet, &known.CanUpdateMachineSet, found.CanUpdateMachineSet},
		{UpdateMachine, &known.UpdateMachine, found.UpdateMachine},
	} {
		switch {
		case h.found != "":
			*h.known = h.found
		case *h.known != "":
			missing = append(missing, h.hook)
		}
	}
	return missing
}

func (d *Discovery) ask(ctx context.Context, u *refitv1.UpdaterRegistration) (refitv1.UpdaterHandlers, error) {
	remote := d.Registry.remote(ctx, u)
	if remote.caller == nil {
		return refitv1.UpdaterHandlers{}, remote.broken
	}
	ctx, cancel := context.WithTimeout(ctx, remote.timeout)
	defer cancel()
	return discover(ctx, remote.caller, u.Spec.Handlers)
}
