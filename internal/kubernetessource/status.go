package kubernetessource

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

// +kubebuilder:rbac:groups=capi-refit.dev,resources=kubernetessources/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// statusRefresh is how old the count of Machines in a status may be.
const statusRefresh = 30 * time.Second

// Reasons of the Ready condition.
const (
	reasonRead    = "Read"
	reasonInvalid = "InvalidSource"
)

// Status shows in each source's status whether it can be read. It runs in the leader only, and writes what has changed.
type Status struct {
	Client   client.Client
	Recorder events.EventRecorder
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kubernetessource-status").For(&refitv1.KubernetesSource{}).Complete(s)
}

// Reconcile writes the status of a source, and comes back to count its Machines again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var source refitv1.KubernetesSource
	if err := s.Client.Get(ctx, req.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	read := Compile(&source)
	before := source.Status.DeepCopy()
	st := &source.Status
	st.ObservedGeneration = source.Generation
	selected, err := read.Selector.Count(ctx, s.Client, read.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	st.SelectedMachines = &selected
	versions := int32(len(source.Spec.Versions))
	st.Versions = &versions
	read.condition(st)
	if equality.Semantic.DeepEqual(before, st) {
		return ctrl.Result{RequeueAfter: statusRefresh}, nil
	}
	if err := s.Client.Status().Update(ctx, &source); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of KubernetesSource %s: %w", req, err)
	}
	s.tell(&source, before)
	return ctrl.Result{RequeueAfter: statusRefresh}, nil
}

// condition says whether the source can be read.
func (s *Source) condition(st *refitv1.KubernetesSourceStatus) {
	c := metav1.Condition{
		Type: refitv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: reasonRead, Message: "the source can be read",
		ObservedGeneration: st.ObservedGeneration,
	}
	if s.Err != nil {
		c.Status, c.Reason = metav1.ConditionFalse, reasonInvalid
		c.Message = "the source can't be read, and no Machine that it selects is brought to another version: " + s.Err.Error()
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// tell has an Event for what operators have to know of.
func (s *Status) tell(source *refitv1.KubernetesSource, before *refitv1.KubernetesSourceStatus) {
	was, is := meta.FindStatusCondition(before.Conditions, refitv1.ReadyCondition), meta.FindStatusCondition(source.Status.Conditions, refitv1.ReadyCondition)
	if was != nil && was.Status == is.Status && was.Message == is.Message {
		return
	}
	if is.Status == metav1.ConditionFalse {
		s.Recorder.Eventf(source, nil, corev1.EventTypeWarning, is.Reason, "Read", "%s", changemanagement.Note(is.Message))
	} else if was != nil {
		s.Recorder.Eventf(source, nil, corev1.EventTypeNormal, is.Reason, "Read", "%s", is.Message)
	}
}
