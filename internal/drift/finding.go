package drift

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// namedDrift is how many resources a message names. The status lists more.
const namedDrift = 10

// Finding is what a comparison of a node with what was applied to it has found.
type Finding struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Compared means that the node has answered, so that Drift is all there is.
	Compared bool
	Drift    []node.Drift
	// Repair means that the node is to be brought back.
	Repair bool
}

// Drifted reports whether the node has.
func (f *Finding) Drifted() bool { return f.Status == metav1.ConditionTrue }

// Unknown returns the Finding of a comparison that told nothing.
func Unknown(reason, message string) Finding {
	return Finding{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// Judge returns what a report means for a node to which the specs of the digest were applied.
func Judge(r *node.DriftReport, digest string) Finding {
	switch {
	case r.UnderWay:
		return Unknown(refitv1.DriftUnderWay, "the node is being changed, so it was not compared")
	case !r.Recorded:
		return Unknown(refitv1.DriftNoRecord, "the node has no record of what was applied to it, so nothing can be compared; "+
			"the next update makes one")
	case r.Digest != digest:
		return Finding{
			Status: metav1.ConditionTrue, Reason: refitv1.DriftOtherRecord, Compared: true, Drift: r.Drift,
			Message: "the node has a record of other specs than were applied last, as after a restore from a backup" + besides(r.Drift),
		}
	case len(r.Drift) > 0:
		return Finding{
			Status: metav1.ConditionTrue, Reason: refitv1.DriftFound, Compared: true, Drift: r.Drift,
			Message: "the node no longer shows what was applied: " + Names(r.Drift),
		}
	case len(r.Unknown) > 0:
		return Unknown(refitv1.DriftNotCompared, "not all on the node could be compared: "+node.Problems(r.Unknown[:min(len(r.Unknown), namedDrift)]))
	default:
		return Finding{Status: metav1.ConditionFalse, Reason: refitv1.DriftNone, Message: "the node shows what was applied", Compared: true}
	}
}

func besides(drift []node.Drift) string {
	if len(drift) == 0 {
		return ""
	}
	return "; and of those there has changed: " + Names(drift)
}

// Names names what has drifted, and in which respects.
func Names(drift []node.Drift) string {
	var names []string
	for _, d := range drift[:min(len(drift), namedDrift)] {
		names = append(names, d.String())
	}
	if more := len(drift) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Known reports whether the node had drifted already when it was compared last.
func Known(mu *refitv1.MachineUpdate) bool {
	d := mu.Status.Drift
	return meta.IsStatusConditionTrue(mu.Status.Conditions, refitv1.DriftedCondition) || d != nil && d.Total > 0
}

// Note writes a Finding into the status of a MachineUpdate of a generation.
func (f *Finding) Note(s *refitv1.MachineUpdateStatus, at metav1.Time, generation int64) {
	d := s.Drift
	if d == nil {
		d = &refitv1.DriftStatus{}
		s.Drift = d
	}
	d.CheckedAt = &at
	if f.Compared {
		d.ComparedAt, d.Resources, d.Total = &at, nil, int32(len(f.Drift))
		for _, r := range f.Drift[:min(len(f.Drift), refitv1.MaxDriftedResources)] {
			d.Resources = append(d.Resources, refitv1.DriftedResource{Kind: string(r.Kind), Name: r.Name, What: slices.Clone(r.What)})
		}
	}
	if f.Status == metav1.ConditionFalse {
		d.Repairs = 0
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: refitv1.DriftedCondition, Status: f.Status, Reason: f.Reason, Message: f.Message, ObservedGeneration: generation,
	})
}
