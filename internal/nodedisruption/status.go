package nodedisruption

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodedisruptionpolicies/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reasonInvalid is the reason of the Ready condition of a policy that can't be read.
const reasonInvalid = "InvalidPolicy"

// Status shows in each policy's status what it means. It runs in the leader only, and writes what has changed.
type Status struct {
	Client   client.Client
	Policies *Policies
	Recorder events.EventRecorder
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	later := &policykind.Later{Client: mgr.GetClient(), List: &refitv1.NodeDisruptionPolicyList{}}
	named := ctrl.NewControllerManagedBy(mgr).Named("nodedisruptionpolicy-status").For(&refitv1.NodeDisruptionPolicy{})
	return shard.Complete(mgr, later.WatchSelected(named), s, &refitv1.NodeDisruptionPolicyList{})
}

// Reconcile writes the status of a policy, and comes back to count its Machines again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.NodeDisruptionPolicy
	st := &policy.Status
	shown := policykind.Shown{
		Client: s.Client, Recorder: s.Recorder, Kind: "NodeDisruptionPolicy", Policy: &policy, Conditions: &st.Conditions,
	}
	return shown.Show(ctx, req, func() (time.Duration, error) {
		read, ok := s.Policies.Of(&policy)
		if !ok {
			return time.Second, nil // it is about to be read
		}
		st.ObservedGeneration = policy.Generation
		selected, err := read.Selector.Count(ctx, s.Client, read.Namespace)
		if err != nil {
			return 0, err
		}
		st.SelectedMachines = &selected
		st.Effective = nil
		if read.Err == nil {
			st.Effective = s.Policies.effective(read)
		}
		meta.SetStatusCondition(&st.Conditions, policykind.Ready(policy.Generation, "policy", read.Err, reasonInvalid,
			"can't be read, and no change of the Machines that it selects is decided"))
		return resync.In(), nil
	})
}

// effective is what is built in with a policy over it, as its status shows it.
func (p *Policies) effective(of *Policy) []refitv1.EffectiveRule {
	rules := Join(p.base, of).Rules.Describe()
	out := make([]refitv1.EffectiveRule, len(rules))
	for i, r := range rules {
		out[i] = refitv1.EffectiveRule{Kind: refitv1.EffectiveKind(r.Kind), Name: r.Name, Actions: r.Actions, From: r.From}
	}
	return out
}
