package changemanagement

import (
	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// ClassOf returns what an update is, as far as that is known: the node says it when it plans. Of one that has been made the plan says nothing any more:
// what drifts is another change.
func ClassOf(mu *refitv1.MachineUpdate) schedule.Class {
	p := mu.Status.Plan
	if p == nil || mu.Status.Phase == refitv1.PhaseSucceeded || mu.Status.ObservedDigest != mu.Spec.Digest {
		return schedule.Class{}
	}
	c := schedule.Class{Disruption: schedule.Disruption(p.Disruption)}
	for _, kind := range p.Kinds {
		c.Kinds = append(c.Kinds, schedule.Kind(kind))
	}
	return c
}
