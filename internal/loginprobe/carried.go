package loginprobe

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// carried is what a status has told of the Machines that it had no room to list: how many of them could be reached, and how many could not.
type carried struct {
	reached, failed int32
	at              time.Time
}

// take takes from the status of a NodeAccess what it knew of Machines, once. It reports whether records may have changed.
func (k *known) take(na *refitv1.NodeAccess, machines []*clusterv1.Machine, now time.Time, lasts span) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKeyFromObject(na)
	if k.taken[key] != nil {
		return false
	}
	if k.taken == nil {
		k.taken = map[types.NamespacedName]*carried{}
	}
	c := &carried{}
	k.taken[key] = c
	s := &na.Status
	if s.ObservedGeneration != na.Generation || s.ProbedAt == nil || now.Sub(s.ProbedAt.Time) > lasts.Duration {
		return false
	}
	all := allTold(s)
	if !all && !lasts.failures { // else some of the counts might never age, since nobody logs in
		c.reached, c.failed, c.at = ptr.Deref(s.Reachable, 0), ptr.Deref(s.Unreachable, 0)-int32(len(s.Unreached)), s.ProbedAt.Time
	}
	listed := listedIn(s)
	for _, m := range machines {
		if r := k.records[client.ObjectKeyFromObject(m)]; r != nil && m.CreationTimestamp.Before(s.ProbedAt) {
			r.take(listed[m.Name], &m.CreationTimestamp, s, all, lasts)
		}
	}
	return true
}

// listedIn returns the Machines that a status lists, by their names.
func listedIn(s *refitv1.NodeAccessStatus) map[string]*refitv1.UnreachedMachine {
	listed := map[string]*refitv1.UnreachedMachine{}
	for i := range s.Unreached {
		listed[s.Unreached[i].Name] = &s.Unreached[i]
	}
	return listed
}

// take takes from a status what it knew of a Machine, which it may list, if nothing later is known. all means that those that it does not list were reached.
func (r *record) take(entry *refitv1.UnreachedMachine, made *metav1.Time, s *refitv1.NodeAccessStatus, all bool, lasts span) {
	switch {
	case entry != nil && !entry.Since.Before(made):
		at := s.ProbedAt.Time
		if lasts.failures {
			at = entry.Since.Time // the last login that failed may have been no later, and must not get younger with each restart
		}
		if r.at.Before(at) {
			r.Finding, r.at, r.since = Finding{entry.Reason, entry.Message}, at, entry.Since.Time
		}
	case !all:
		r.pooled = true
	case !r.fresh && r.at.Before(s.ProbedAt.Time):
		r.Finding, r.at, r.since = Finding{}, s.ProbedAt.Time, time.Time{}
	}
}

// allTold reports whether a status tells of each Machine that it counts: those that it does not list were reached.
func allTold(s *refitv1.NodeAccessStatus) bool {
	return s.Machines != nil && s.Reachable != nil && int(*s.Machines) == int(*s.Reachable)+len(s.Unreached)
}

// untried returns how many nodes could be reached, and how many could not, of those that were not tried since a status was taken that had no room for them. Of
// which it was, the first logins tell.
func (k *known) untried(na types.NamespacedName, records []record, now time.Time, lasts span) (reached, failed int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.taken[na]
	if c == nil || now.Sub(c.at) > lasts.Duration {
		return 0, 0
	}
	var left int32
	reached, failed = c.reached, c.failed
	for _, r := range records {
		switch {
		case !r.pooled:
		case r.at.IsZero():
			left++
		case r.Reason == "":
			reached--
		default:
			failed--
		}
	}
	failed = min(max(failed, 0), left)
	return min(max(reached, 0), left-failed), failed
}
