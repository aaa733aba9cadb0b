package nodedisruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodedisruptionpolicies/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// statusRefresh is how old the count of Machines in a status may be.
const statusRefresh = 30 * time.Second

// Reasons of the Ready condition.
const (
	reasonRead    = "Read"
	reasonInvalid = "InvalidPolicy"
)

// Status shows in each policy's status what it means. It runs in the leader only, and writes what has changed.
type Status struct {
	Client   client.Client
	Policies *Policies
	Recorder events.EventRecorder
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("nodedisruptionpolicy-status").For(&refitv1.NodeDisruptionPolicy{}).Complete(s)
}

// Reconcile writes the status of a policy, and comes back to count its Machines again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.NodeDisruptionPolicy
	if err := s.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	read := s.Policies.named(&policy)
	if read == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil // it is about to be read
	}
	before := policy.Status.DeepCopy()
	st := &policy.Status
	st.ObservedGeneration = policy.Generation
	selected, err := read.Selector.Count(ctx, s.Client, read.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	st.SelectedMachines = &selected
	st.Effective = nil
	if read.Err == nil {
		st.Effective = s.Policies.effective(read)
	}
	read.condition(st)
	if equality.Semantic.DeepEqual(before, st) {
		return ctrl.Result{RequeueAfter: statusRefresh}, nil
	}
	if err := s.Client.Status().Update(ctx, &policy); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of NodeDisruptionPolicy %s: %w", req, err)
	}
	s.tell(&policy, before)
	return ctrl.Result{RequeueAfter: statusRefresh}, nil
}

// named returns what was read of this very version of a policy, or nil.
func (p *Policies) named(policy *refitv1.NodeDisruptionPolicy) *Policy {
	all, err := p.read.In(policy.Namespace)
	if err != nil {
		return nil // they have not been read yet
	}
	for _, one := range all {
		if one.UID == policy.UID && one.Generation == policy.Generation {
			return one
		}
	}
	return nil
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

// condition says whether the policy can be read.
func (p *Policy) condition(st *refitv1.NodeDisruptionPolicyStatus) {
	c := metav1.Condition{
		Type: refitv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: reasonRead, Message: "the policy can be read",
		ObservedGeneration: st.ObservedGeneration,
	}
	if p.Err != nil {
		c.Status, c.Reason = metav1.ConditionFalse, reasonInvalid
		c.Message = "the policy can't be read, and no change of the Machines that it selects is decided: " + p.Err.Error()
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// tell has an Event for what operators have to know of.
func (s *Status) tell(policy *refitv1.NodeDisruptionPolicy, before *refitv1.NodeDisruptionPolicyStatus) {
	was, is := meta.FindStatusCondition(before.Conditions, refitv1.ReadyCondition), meta.FindStatusCondition(policy.Status.Conditions, refitv1.ReadyCondition)
	if was != nil && was.Status == is.Status && was.Message == is.Message {
		return
	}
	if is.Status == metav1.ConditionFalse {
		s.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, is.Reason, "Read", "%s", changemanagement.Note(is.Message))
	} else if was != nil {
		s.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, is.Reason, "Read", "%s", is.Message)
	}
}
