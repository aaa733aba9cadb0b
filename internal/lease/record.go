package lease

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// DefaultNamespace is where medik8s keeps its leases.
	DefaultNamespace = "medik8s-leases"

	// WorkerDuration is how long a lease protects a worker after it was renewed last.
	WorkerDuration = 600 * time.Second
	// ControlPlaneDuration is the same for a node of the control plane, whose update may take the API server away.
	ControlPlaneDuration = 1200 * time.Second

	// RenewEvery is how often a lease should be renewed.
	RenewEvery = 20 * time.Second

	// RecordAnnotation on a lease that refit holds says which acquisition it is. It counts for nothing when another holds the
	// lease: whoever steals one leaves the annotations as they are.
	RecordAnnotation = "capi-refit.dev/lease"

	// Tolerance is how far clocks may be apart. medik8s takes a lease whose renewTime is in the reader's future, so that ours
	// is written that much into the past.
	Tolerance = 30 * time.Second

	// callTimeout bounds a renewal or a release, and what can't be left undone when the caller's context has ended.
	callTimeout = 5 * time.Second

	holderPrefix = "refit/"
	// adminPrefix and kubeadmPrefix begin the holders who are people. Theirs never lapse: of the second, KEP-1411 says so.
	adminPrefix   = "admin/"
	kubeadmPrefix = "kubeadm"
)

// Name returns the name of a node's lease, as medik8s makes it.
func Name(node string) string { return "node-" + node }

// Holder returns what a lease has as its holder while refit works on the Machine's node.
func Holder(machine types.UID) string { return holderPrefix + string(machine) }

// IsPerson reports whether the holder is a person.
func IsPerson(holder string) bool {
	return strings.HasPrefix(holder, adminPrefix) || strings.HasPrefix(holder, kubeadmPrefix)
}

// Record is what refit notes on a lease that it holds.
type Record struct {
	// Instance is the process that acquired the lease.
	Instance string `json:"instance"`
	// Operation and Step are for people.
	Operation string `json:"operation,omitempty"`
	Step      string `json:"step,omitempty"`
	// After is the resourceVersion of the lease that the acquisition replaced, empty if it made the lease. No two acquisitions
	// of one lease have the same.
	After string `json:"after,omitempty"`
	// Token is the fencing token. The acquisition does not know it, so that it is there from the first renewal on.
	Token int64 `json:"token,omitempty"`
}

// RecordOf returns what refit notes on a lease, and false if refit does not hold it or the note can't be read.
func RecordOf(lease *coordinationv1.Lease) (Record, bool) {
	var r Record
	if !strings.HasPrefix(holderOf(lease), holderPrefix) {
		return r, false
	}
	return r, json.Unmarshal([]byte(lease.Annotations[RecordAnnotation]), &r) == nil
}

func (r Record) write(lease *coordinationv1.Lease) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the lease's record: %w", err)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, RecordAnnotation, string(text))
	return nil
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// durationOf returns a lease's duration, or 0 if it has none.
func durationOf(lease *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// sinceOf returns since when a lease has been held, or zero if it does not say.
func sinceOf(lease *coordinationv1.Lease) time.Time {
	switch {
	case lease.Spec.AcquireTime != nil:
		return lease.Spec.AcquireTime.Time
	case lease.Spec.RenewTime != nil:
		return lease.Spec.RenewTime.Time
	default:
		return time.Time{}
	}
}

// reasonOf returns why a lease is held, if its holder is one of whom it is known where that stands.
func reasonOf(lease *coordinationv1.Lease) string {
	if IsPerson(holderOf(lease)) {
		return lease.Annotations[HoldReasonAnnotation]
	}
	r, _ := RecordOf(lease)
	return strings.Trim(r.Operation+", "+r.Step, ", ")
}

// taken returns the lease as it is when holder has taken it: a new one, or current, which may be nil, under the guard of its
// resourceVersion. Transitions count as client-go counts them: when the holder changes.
func taken(current *coordinationv1.Lease, key types.NamespacedName, node *corev1.Node, holder string) *coordinationv1.Lease {
	lease, transitions := &coordinationv1.Lease{}, int32(0)
	lease.Namespace, lease.Name = key.Namespace, key.Name
	if current != nil {
		lease, transitions = current.DeepCopy(), ptr.Deref(current.Spec.LeaseTransitions, 0)
		if holderOf(current) != holder {
			transitions++
		}
	}
	delete(lease.Annotations, RecordAnnotation)
	delete(lease.Annotations, HoldReasonAnnotation)
	// With the Node goes its lease. An owner that is a former Node of the name would take it away too early.
	lease.OwnerReferences = slices.DeleteFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
	lease.OwnerReferences = append(lease.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &transitions}
	return lease
}

// renewed writes that a lease was renewed. Duration and renewTime have the same tolerance, in opposite directions.
func renewed(lease *coordinationv1.Lease, now time.Time, d time.Duration) {
	at := metav1.NewMicroTime(now.Add(-Tolerance))
	lease.Spec.RenewTime = &at
	lease.Spec.LeaseDurationSeconds = ptr.To(int32((d + Tolerance + time.Second - 1) / time.Second))
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &at
	}
}

// released writes that nobody holds a lease. medik8s does not look at an empty holder but at the times, and these are over; and
// it reads the holder, which must not be missing.
func released(lease *coordinationv1.Lease, now time.Time) {
	at := metav1.NewMicroTime(now.Add(-Tolerance))
	lease.Spec.HolderIdentity = ptr.To("")
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](1)
	lease.Spec.RenewTime = &at
	delete(lease.Annotations, RecordAnnotation)
	delete(lease.Annotations, HoldReasonAnnotation)
}
