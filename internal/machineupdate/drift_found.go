package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// namedDrift is how many resources a message names. The status lists more.
const namedDrift = 10

// finding is what a comparison of a node with what was applied to it has found.
type finding struct {
	status          metav1.ConditionStatus
	reason, message string
	// compared says that the node has answered, so that drift is all there is.
	compared bool
	drift    []node.Drift
	// repair says that the node is to be brought back.
	repair bool
}

func (f *finding) drifted() bool { return f.status == metav1.ConditionTrue }

func unknown(reason, message string) finding {
	return finding{status: metav1.ConditionUnknown, reason: reason, message: message}
}

// judge says what a report means for a node to which the specs of the digest were applied.
func judge(r *node.DriftReport, digest string) finding {
	switch {
	case r.UnderWay:
		return unknown(refitv1.DriftUnderWay, "the node is being changed, so it was not compared")
	case !r.Recorded:
		return unknown(refitv1.DriftNoRecord, "the node has no record of what was applied to it, so nothing can be compared; "+
			"the next update makes one anew")
	case r.Digest != digest:
		return finding{
			status: metav1.ConditionTrue, reason: refitv1.DriftOtherRecord, compared: true, drift: r.Drift,
			message: "the node has a record of other specs than were applied last, as after a restore from a backup" + besides(r.Drift),
		}
	case len(r.Drift) > 0:
		return finding{
			status: metav1.ConditionTrue, reason: refitv1.DriftFound, compared: true, drift: r.Drift,
			message: "the node no longer shows what was applied: " + driftNames(r.Drift),
		}
	case len(r.Unknown) > 0:
		return unknown(refitv1.DriftNotCompared, "not all on the node could be compared: "+problems(r.Unknown[:min(len(r.Unknown), namedDrift)]))
	default:
		return finding{status: metav1.ConditionFalse, reason: refitv1.DriftNone, message: "the node shows what was applied", compared: true}
	}
}

func besides(drift []node.Drift) string {
	if len(drift) == 0 {
		return ""
	}
	return "; and of those there has changed: " + driftNames(drift)
}

// driftNames names what has drifted, and in which respects.
func driftNames(drift []node.Drift) string {
	var names []string
	for _, d := range drift[:min(len(drift), namedDrift)] {
		names = append(names, d.String())
	}
	if more := len(drift) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// found records what a check has found, and begins a repair if there is to be one.
func (c *DriftChecker) found(ctx context.Context, u *update, f finding) error {
	news := f.drifted() && !knownDrift(u.mu)
	asked := u.mu.Annotations[refitv1.CheckDriftAnnotation]
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		if f.repair {
			u.repairBegins(s, f.message)
		}
		u.noteDrift(s, f)
		s.Drift.ObservedCheck = asked
	})
	if err != nil {
		return err
	}
	c.Metrics.checked(f.status)
	u.tellDrift(news, f)
	return nil
}

// knownDrift says whether the node had drifted already when it was compared last.
func knownDrift(mu *refitv1.MachineUpdate) bool {
	d := mu.Status.Drift
	return meta.IsStatusConditionTrue(mu.Status.Conditions, refitv1.DriftedCondition) || d != nil && d.Total > 0
}

func (u *update) tellDrift(news bool, f finding) {
	if news {
		u.event(corev1.EventTypeWarning, "NodeDrifted", "CheckDrift", f.message)
	}
}

// noteDrift writes a finding into a status.
func (u *update) noteDrift(s *refitv1.MachineUpdateStatus, f finding) {
	d := s.Drift
	if d == nil {
		d = &refitv1.DriftStatus{}
		s.Drift = d
	}
	at := u.now()
	d.CheckedAt = &at
	if f.compared {
		d.ComparedAt, d.Resources, d.Total = &at, nil, int32(len(f.drift))
		for _, r := range f.drift[:min(len(f.drift), refitv1.MaxDriftedResources)] {
			d.Resources = append(d.Resources, refitv1.DriftedResource{Kind: string(r.Kind), Name: r.Name, What: slices.Clone(r.What)})
		}
	}
	if f.status == metav1.ConditionFalse {
		d.Repairs = 0
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: refitv1.DriftedCondition, Status: f.status, Reason: f.reason, Message: f.message, ObservedGeneration: u.mu.Generation,
	})
}

// noteVerified writes what the node has shown at the end of an update, which is a comparison of its own.
func (u *update) noteVerified(s *refitv1.MachineUpdateStatus) finding {
	f := judge(&node.DriftReport{Recorded: true, Digest: s.ObservedDigest, Drift: u.left}, s.ObservedDigest)
	repairs := int32(0)
	if s.Repair != nil {
		repairs = 1
		if s.Drift != nil {
			repairs += s.Drift.Repairs
		}
		if f.drifted() {
			repairs = maxRepairs
			f.message += "; the repair could not bring it back: do so on the node"
		}
	}
	u.noteDrift(s, f)
	s.Drift.Repairs, s.Repair = repairs, nil
	return f
}
