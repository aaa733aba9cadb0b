package pending

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/policykind"
)

// maxName is how long a name may be.
const maxName = 253

// nameOf returns the name of an owner's PendingChange.
func nameOf(o refitv1.PendingOwner) string {
	name := strings.ToLower(o.Kind) + "-" + o.Name
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-17] + "-" + hex.EncodeToString(sum[:8])
}

// objects returns the PendingChanges of a Cluster: of its owners of Machines at which something waits, and its own.
func objects(now time.Time, cluster *clusterv1.Cluster, entries []*entry) []*refitv1.PendingChange {
	groups := map[owner][]*entry{}
	for _, e := range entries {
		if e.meta != nil {
			groups[e.owner] = append(groups[e.owner], e)
		}
	}
	var out []*refitv1.PendingChange
	add := func(o refitv1.PendingOwner, role refitv1.Role, ref metav1.OwnerReference, of []*entry) {
		p := &refitv1.PendingChange{Spec: refitv1.PendingChangeSpec{Cluster: cluster.Name, Owner: o, Role: role}}
		p.Namespace, p.Name = cluster.Namespace, nameOf(o)
		p.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name}
		p.OwnerReferences = []metav1.OwnerReference{ref}
		if p.Status = statusOf(now, of); p.Status.Machines > 0 {
			out = append(out, p)
		}
	}
	for o, of := range groups {
		ref := metav1.OwnerReference{APIVersion: o.apiVersion, Kind: o.kind, Name: o.name, UID: of[0].meta.UID}
		add(refitv1.PendingOwner{Kind: o.kind, Name: o.name}, of[0].prospect.Role, ref, of)
	}
	ref := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}
	add(refitv1.PendingOwner{Kind: "Cluster", Name: cluster.Name}, "", ref, entries)
	return out
}

// statusOf returns what waits of some entries.
func statusOf(now time.Time, entries []*entry) refitv1.PendingChangeStatus {
	var st refitv1.PendingChangeStatus
	waiting := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.underWay })
	slices.SortFunc(waiting, firstFirst)
	st.Machines, st.UnderWay = int32(len(waiting)), int32(len(entries)-len(waiting))
	causes := map[refitv1.PendingCause]int32{}
	for i, e := range waiting {
		causes[e.cause]++
		if i < refitv1.MaxPendingMachines {
			st.List = append(st.List, refitv1.PendingMachine{Name: e.machine.Name, Cause: e.cause, Reason: e.reason, EarliestStart: instant(e.earliest)})
		}
	}
	st.More = st.Machines - int32(len(st.List))
	for _, cause := range causesInOrder {
		if n := causes[cause]; n > 0 {
			st.Causes = append(st.Causes, refitv1.PendingCount{Cause: cause, Machines: n})
		}
	}
	if len(waiting) == 0 {
		return st
	}
	st.EarliestStart = instant(waiting[0].earliest)
	st.LastDone = lastDone(entries)
	st.Policies, st.Claims = policiesOf(now, waiting), allClaims(waiting)
	apimeta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: refitv1.ChangePendingCondition, Status: metav1.ConditionTrue, Reason: string(st.Causes[0].Cause),
		Message: policykind.Note(message(st.Causes, waiting)), LastTransitionTime: metav1.NewTime(now),
	})
	return st
}

// allClaims are the fields that registered extensions make of all entries.
func allClaims(waiting []*entry) []refitv1.PendingClaim {
	var all []refitv1.PendingClaim
	for _, e := range waiting {
		all = append(all, e.claims...)
	}
	slices.SortFunc(all, func(a, b refitv1.PendingClaim) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Field, b.Field), strings.Compare(a.Registration, b.Registration))
	})
	all = slices.Compact(all)
	return all[:min(len(all), refitv1.MaxPendingClaims)]
}

// causesInOrder are the causes, first that which is told if there are several.
var causesInOrder = []refitv1.PendingCause{refitv1.PendingUpgrade, refitv1.PendingReplacement, refitv1.PendingInPlace, refitv1.PendingUnknown}

// words say what becomes of Machines.
var words = map[refitv1.PendingCause]string{
	refitv1.PendingUpgrade: "to be upgraded", refitv1.PendingReplacement: "to be replaced", refitv1.PendingInPlace: "to be updated in place",
	refitv1.PendingUnknown: "to be updated in place or replaced",
}

// message tells what waits, and for what the first does. It has nothing in it that changes by itself.
func message(causes []refitv1.PendingCount, waiting []*entry) string {
	parts := make([]string, len(causes))
	for i, c := range causes {
		parts[i] = fmt.Sprintf("%d %s", c.Machines, words[c.Cause])
	}
	text := strings.Join(parts, ", ")
	for _, e := range waiting {
		if e.note != "" {
			return text + "; " + e.note
		}
	}
	return text
}

// firstFirst sorts those that may start first before the others, and last those of which it is not known.
func firstFirst(a, b *entry) int {
	if a.earliest.IsZero() != b.earliest.IsZero() {
		return order(!a.earliest.IsZero())
	}
	return cmp.Or(a.earliest.Compare(b.earliest), strings.Compare(a.machine.Name, b.machine.Name))
}

// instant returns a time as the API has it, nil if it is not known.
func instant(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.UTC().Truncate(time.Second)))
}

// estimateRound is to what an estimate is rounded up.
const estimateRound = 5 * time.Minute

// lastDone returns when the last is expected to be done, nil if that is not known of one.
func lastDone(entries []*entry) *metav1.Time {
	var last time.Time
	for _, e := range entries {
		if e.end.IsZero() {
			return nil
		}
		last = latest(last, e.end)
	}
	return instant(last.Add(estimateRound - 1).Truncate(estimateRound))
}

// maxPolicies is how many policies a status names.
const maxPolicies = 100

// policiesOf counts by policies what has no MachineUpdate. What nothing but a person lets start is held back by none.
func policiesOf(now time.Time, waiting []*entry) []refitv1.PendingPolicy {
	counts := map[string]*refitv1.PendingPolicy{}
	for _, e := range waiting {
		if e.update != nil || e.stuck && e.reason != refitv1.PendingForbidden {
			continue
		}
		for _, p := range e.prospect.Policies {
			c := counts[p.Title()]
			if c == nil {
				c = &refitv1.PendingPolicy{Name: p.Title()}
				counts[p.Title()] = c
			}
			c.Machines++
			if e.held(now) {
				c.Held++
				addClass(c, p, e)
			}
		}
	}
	var out []refitv1.PendingPolicy
	for _, c := range counts {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b refitv1.PendingPolicy) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(len(out), maxPolicies)]
}

// held reports whether it may not start now.
func (e *entry) held(now time.Time) bool {
	return e.stuck || e.earliest.IsZero() || e.earliest.After(now)
}

// addClass adds what a change is that is held back, where that has a say under a policy.
func addClass(c *refitv1.PendingPolicy, p *changemanagement.Policy, e *entry) {
	class := refitv1.PendingClass{Kinds: e.prospect.Class.Kinds, Disruption: e.prospect.Class.Disruption}
	known := slices.ContainsFunc(c.Classes, func(o refitv1.PendingClass) bool { return equality.Semantic.DeepEqual(o, class) })
	if p.Schedule.Scoped() && !known && len(c.Classes) < refitv1.MaxPendingClasses {
		c.Classes = append(c.Classes, class)
	}
}

// estimateDrift is by how much an estimate may be wrong before it is written again.
const estimateDrift = 15 * time.Minute

// settle has a status keep what an earlier one says as long as that is still right: since when something may start, since when something waits, and
// an estimate that is about the same.
func settle(now time.Time, st, before *refitv1.PendingChangeStatus) {
	known := map[string]*metav1.Time{}
	for _, m := range before.List {
		known[m.Name] = m.EarliestStart
	}
	for i, m := range st.List {
		st.List[i].EarliestStart = since(now, m.EarliestStart, known[m.Name])
	}
	st.EarliestStart = since(now, st.EarliestStart, before.EarliestStart)
	st.LastDone = about(now, st.LastDone, before.LastDone)
	for i, c := range st.Conditions {
		if was := apimeta.FindStatusCondition(before.Conditions, c.Type); was != nil && was.Status == c.Status {
			st.Conditions[i].LastTransitionTime = was.LastTransitionTime
		}
	}
}

// since returns from when on something may start: of what may already, as it was told first.
func since(now time.Time, at, was *metav1.Time) *metav1.Time {
	if at != nil && was != nil && !at.After(now) && !was.After(now) {
		return was
	}
	return at
}

// about returns an estimate, or the one before that is about the same.
func about(now time.Time, at, was *metav1.Time) *metav1.Time {
	if at != nil && was != nil && was.After(now) && at.Sub(was.Time).Abs() <= max(estimateDrift, at.Sub(now)/10) {
		return was
	}
	return at
}
