package lease

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// HoldByAnnotation beside a hold annotation is who holds.
	HoldByAnnotation = refitv1.HoldAnnotation + "-by"
	// HoldReasonAnnotation is why an administrator holds a node, on the node lease or beside a hold annotation.
	HoldReasonAnnotation = refitv1.HoldAnnotation + refitv1.OverrideReasonSuffix
)

// PersonsHold is a hold as the annotations of an object say it.
type PersonsHold struct {
	// By is who holds, "" if they don't say, and Reason why.
	By, Reason string
	// Until is when the hold ends, if Ends says that it does by itself.
	Until time.Time
	Ends  bool
}

// PersonsHoldOf reads the hold of an object; there is none without the annotation. It may be over.
func PersonsHoldOf(obj metav1.Object) (h PersonsHold, held bool) {
	all := obj.GetAnnotations()
	value, held := all[refitv1.HoldAnnotation]
	if !held {
		return h, false
	}
	h.By, h.Reason = all[HoldByAnnotation], all[HoldReasonAnnotation]
	until, err := time.Parse(time.RFC3339, value)
	switch {
	case err == nil:
		h.Until, h.Ends = until, true
	case value != "true" && h.Reason == "":
		h.Reason = value
	}
	return h, true
}

// Over reports whether the hold has ended by itself.
func (h PersonsHold) Over(now time.Time) bool { return h.Ends && !now.Before(h.Until) }
