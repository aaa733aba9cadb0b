package policykind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/plain"
)

// Shown is a policy whose status shows what it means.
type Shown struct {
	Client   client.Client
	Recorder events.EventRecorder
	// Kind is that of the policy, for messages.
	Kind string
	// Policy is an empty one, and Conditions are those of its status.
	Policy     client.Object
	Conditions *[]metav1.Condition
	// Alarms are the conditions besides Ready that have an Event when they become True, and when they do no longer.
	Alarms []string
}

// Show reads the policy, has fill write into its status what holds now, and writes it if that is something else than before. It has Events
// for what operators have to know of. fill returns when to look again.
func (s *Shown) Show(ctx context.Context, req ctrl.Request, fill func() (time.Duration, error)) (ctrl.Result, error) {
	if err := s.Client.Get(ctx, req.NamespacedName, s.Policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before, conditions := s.Policy.DeepCopyObject(), slices.Clone(*s.Conditions)
	again, err := fill()
	if err != nil {
		return ctrl.Result{}, err
	}
	if !equality.Semantic.DeepEqual(before, s.Policy) { // times in whatever zone
		if err := s.Client.Status().Update(ctx, s.Policy); err != nil {
			return ctrl.Result{}, fmt.Errorf("write the status of %s %s: %w", s.Kind, req, err)
		}
		s.tell(conditions)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// tell has an Event for each condition that has come to say something else. Of an alarm, what exactly it says is in the status.
func (s *Shown) tell(before []metav1.Condition) {
	for _, name := range append([]string{refitv1.ReadyCondition}, s.Alarms...) {
		was, is := meta.FindStatusCondition(before, name), meta.FindStatusCondition(*s.Conditions, name)
		ready, bad := name == refitv1.ReadyCondition, metav1.ConditionTrue
		if ready {
			bad = metav1.ConditionFalse
		}
		if is == nil || was != nil && was.Status == is.Status && (was.Message == is.Message || !ready) {
			continue
		}
		if is.Status == bad {
			s.Recorder.Eventf(s.Policy, nil, corev1.EventTypeWarning, is.Reason, "Read", "%s", Note(is.Message))
		} else if was != nil && was.Status == bad {
			s.Recorder.Eventf(s.Policy, nil, corev1.EventTypeNormal, is.Reason, "Read", "%s", Note(is.Message))
		}
	}
}

// Ready is the condition that reports whether a thing, a policy or a source, can be read. If err says that it can't, reason is why, and stuck
// what the thing is then.
func Ready(generation int64, thing string, err error, reason, stuck string) metav1.Condition {
	c := metav1.Condition{
		Type: refitv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Read", Message: "the " + thing + " can be read",
		ObservedGeneration: generation,
	}
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, plain.Line("the "+thing+" "+stuck+": "+strings.ReplaceAll(err.Error(), "\n", "; "), maxMessage)
	}
	return c
}

// Repeated is an object for an Event of what is told again and again. Who records Events takes those for the same that are about the same object of the same
// resource version, and an object is written for many reasons.
func Repeated(of client.Object) client.Object {
	same := of.DeepCopyObject().(client.Object)
	same.SetResourceVersion("")
	return same
}

// maxMessage is how long the message of a condition may be, in bytes. An API server refuses longer ones.
const maxMessage = 32 << 10

// maxNote is how long the note of an Event may be, in bytes. An API server refuses longer ones.
const maxNote = 1024

// Note returns a message as an Event takes it: one line.
func Note(message string) string {
	return plain.Line(message, maxNote)
}
