package bootimage

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// refresh is how old a status may be: infrastructure machines are not watched.
	refresh = 10 * time.Minute
	// settle is how long changes of Machines are waited for to be counted together.
	settle = time.Minute
)

// Status shows in each policy's status how the Machines stand that it selects. It runs in the leader only, and writes what has
// changed.
type Status struct {
	// Client reads policies, Machines and Clusters out of caches, and writes statuses.
	Client client.Client
	// Live reads infrastructure machines from the API server.
	Live     client.Reader
	Policies *Policies
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("bootimagepolicy-status").
		For(&refitv1.BootImagePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Machine{}, s.machinesChanged(), builder.WithPredicates(predicate.Or[client.Object](
			predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
		))), s, &refitv1.BootImagePolicyList{})
}

// machinesChanged has the policies of a Machine's namespace counted again, some time later and once for many changes.
func (s *Status) machinesChanged() handler.EventHandler {
	later := func(o client.Object, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		all, err := s.Policies.In(o.GetNamespace())
		if err != nil {
			return // each policy is counted when it is read
		}
		for _, p := range all {
			queue.AddAfter(ctrl.Request{NamespacedName: p.NamespacedName}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			later(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			later(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			later(e.Object, q)
		},
	}
}

// Reconcile writes the status of a policy, and comes back to count its Machines again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.BootImagePolicy
	shown := policykind.Shown{
		Client: s.Client, Recorder: s.Recorder, Kind: "BootImagePolicy", Policy: &policy, Conditions: &policy.Status.Conditions,
		Alarms: []string{refitv1.BootImageSkewCondition, refitv1.ForeignMachinesCondition, refitv1.StaleTemplatesCondition},
	}
	return shown.Show(ctx, req, func() (time.Duration, error) {
		read, ok := s.Policies.Of(&policy)
		if !ok {
			return time.Second, nil // it is about to be read
		}
		policy.Status.ObservedGeneration = policy.Generation
		return refresh, s.fill(ctx, read, &policy.Status)
	})
}

// fill writes into a status what holds now. Of a policy that can't be read nothing is known but the history.
func (s *Status) fill(ctx context.Context, p *Policy, st *refitv1.BootImagePolicyStatus) error {
	meta.SetStatusCondition(&st.Conditions, policykind.Ready(p.Generation, "policy", p.Err, reasonInvalid,
		"can't be read, and no change of an image is decided for the Machines that it selects"))
	if p.Err != nil {
		st.Machines = nil
		meta.RemoveStatusCondition(&st.Conditions, refitv1.BootImageSkewCondition)
		meta.RemoveStatusCondition(&st.Conditions, refitv1.ForeignMachinesCondition)
		meta.RemoveStatusCondition(&st.Conditions, refitv1.StaleTemplatesCondition)
		return nil
	}
	found, err := s.count(ctx, p)
	if err != nil {
		return err
	}
	st.Machines = &found.BootImageMachines
	st.History = remember(st.History, found.images, s.Clock.Now())
	p.setSkew(st, found)
	setForeign(st, found)
	setStale(st, found)
	return nil
}
