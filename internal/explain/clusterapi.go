package explain

import (
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/disruption"
)

// rollAfter looks at what has Cluster API replace machines whatever differs, and whatever could be made in place.
func (e *Explainer) rollAfter(o *Owner, was, will *side) { //nolint:cyclop // one rule of Cluster API after the other
	if will.onDelete && will.after != nil && will.after.After(e.Now) {
		return // machines stay also then
	}
	before := was.after
	if was.onDelete {
		before = nil // it has meant nothing
	}
	if will.after != nil && (before == nil || !before.Equal(*will.after)) {
		at := will.after.UTC().Format(time.RFC3339)
		if will.after.After(e.Now) {
			o.causes = append(o.causes, CauseRolloutAfter)
			o.Adds = append(o.Adds, fmt.Sprintf("replaces, from %s on, all machines that were made before (rollout.after), whatever could be made in place", at))
		} else if o.Because = append(o.Because, "spec.rollout.after"); !o.onDelete(will) {
			o.Adds = append(o.Adds, fmt.Sprintf("replaces all machines that were made before %s (rollout.after), whatever could be made in place", at))
			o.replaceUnasked(CauseRolloutAfter)
		}
	}
	if will.before > 0 && will.before != was.before {
		o.causes = append(o.causes, CauseRolloutBefore)
		o.Adds = append(o.Adds, fmt.Sprintf("replaces machines %d days before their certificates end (rollout.before), whatever could be made in place", will.before))
	}
}

// replaceUnasked has Cluster API replace the machines without asking anybody.
func (o *Owner) replaceUnasked(cause Cause) {
	o.causes = append(o.causes, cause)
	o.Verdict, o.Disruption, o.unasked, o.Actions = Replace, disruption.Replace, true, []string{}
	o.Notes = append(o.Notes, "Cluster API asks nobody before this replacement, so that no policy holds it back")
}

// count says what becomes of how many machines, by what Cluster API does with the verdict.
func (o *Owner) count(was, will *side, populated bool) { //nolint:cyclop // one verdict after the other
	o.surges = will.surges && !will.onDelete && (!was.surges || was.onDelete) // OnDelete makes none
	n := min(was.replicas, will.replicas)
	if o.Verdict != InPlace && o.Verdict != Replace && o.Verdict != Unknown || o.onDelete(will) || o.Verdict == Unknown {
		return
	}
	switch {
	case n == 0 && populated && o.Verdict == Replace: // of machines that nobody has counted
	case n == 0:
		o.Adds = append(o.Adds, "there are no machines: those that are made later are made as it is then")
		o.Verdict, o.Disruption, o.Actions = None, disruption.None, []string{}
	case o.Verdict == InPlace:
		o.countInPlace(n, will)
	default:
		o.Machines.Replaced, o.AtOnce = n, min(n, will.limits.Replaced())
		if will.limits.Surge > 0 {
			o.Adds = append(o.Adds, fmt.Sprintf("makes machines beyond the replicas while it replaces the old ones (maxSurge): at most %d", will.limits.Surge))
		}
	}
}

// countInPlace says what becomes of machines that can be updated in place, where a rollout may make a machine more.
func (o *Owner) countInPlace(n int, will *side) {
	switch {
	case !will.surges:
		o.Machines.InPlace, o.AtOnce = n, min(n, will.limits.InPlace())
	case n == 1:
		o.Adds = append(o.Adds, will.surge("makes a machine beside the only one, which it deletes then: nothing is updated in place"))
		o.replaceUnasked(CauseSingle)
		o.Machines.Replaced, o.AtOnce = 1, 1
	default:
		o.causes = append(o.causes, CauseSurge)
		o.Adds = append(o.Adds, will.surge("makes one machine more, and deletes the last old one: the others are updated in place"))
		o.Machines.InPlace, o.Machines.Replaced, o.AtOnce = n-1, 1, will.limits.InPlace()
	}
}

// onDelete takes a strategy by which Cluster API neither replaces machines nor has them updated in place.
func (o *Owner) onDelete(will *side) bool {
	if !will.onDelete {
		return false
	}
	o.Verdict, o.Disruption = OnDelete, disruption.None
	o.causes = append(o.causes, CauseOnDelete)
	o.Adds = append(o.Adds, "asks nobody with the strategy OnDelete: each machine stays as it is until somebody deletes it, and the next one has the change")
	return true
}

// surge explains a surge, and how to do without.
func (s *side) surge(does string) string {
	if s.controlPlane {
		return does + "; with maxSurge 0, which takes three replicas, it does not"
	}
	return does + "; with maxUnavailable 1 or more it does not"
}
