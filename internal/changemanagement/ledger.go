package changemanagement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Bounds of a ledger, as the CustomResourceDefinition has them.
const (
	mostStarts   = 500
	mostFailures = 100
)

// StartsKept is how many starts a MachineUpdate keeps. One that has as many may have had others before.
const StartsKept = 10

// ledger is what counts against the budget of a policy besides the MachineUpdates that there are: they go with their Machines, and who replaces
// one that has failed must not have the next one fail, too.
type ledger struct {
	starts   map[string][]refitv1.LedgerEntry // by update
	failures map[string]refitv1.LedgerEntry   // by update
	soaks    map[string]refitv1.GateFailure   // by update
}

// since returns from when on starts count under a policy at all. One that can't be read for the moment forgets nothing.
func (p *Policy) since(now time.Time) time.Time {
	from, _ := p.period(now, p.Schedule)
	if day := now.Add(-longestPeriod); p.Schedule.Err(now) != nil && day.Before(from) {
		from = day
	}
	if spaced := now.Add(-p.Budget.MinSpacing); spaced.Before(from) {
		from = spaced
	}
	return from
}

// ledgerOf returns the ledger of a policy, with updates that are gone and may not be in it yet. Starts count since then.
func ledgerOf(now, since time.Time, p *refitv1.ChangeManagementPolicy, gone []*refitv1.MachineUpdate) ledger {
	l := ledger{map[string][]refitv1.LedgerEntry{}, map[string]refitv1.LedgerEntry{}, map[string]refitv1.GateFailure{}}
	if known := p.Status.Ledger; known != nil {
		for _, e := range known.Starts {
			if !e.At.Time.Before(since) {
				l.starts[e.Update] = append(l.starts[e.Update], e)
			}
		}
		for _, e := range known.Failures {
			l.failures[e.Update] = e
		}
	}
	for _, mu := range gone {
		l.see(mu, since)
	}
	if seen, ok := failuresSeen(now, p); ok {
		maps.DeleteFunc(l.failures, func(_ string, e refitv1.LedgerEntry) bool { return !e.At.After(seen) })
	}
	return l
}

// failuresSeen returns until when somebody has looked at failures. A time to come would excuse what has not happened yet, and is ignored.
func failuresSeen(now time.Time, p *refitv1.ChangeManagementPolicy) (time.Time, bool) {
	seen, err := time.Parse(time.RFC3339, p.Annotations[refitv1.FailuresSeenAnnotation])
	if err == nil && seen.After(now.Add(clockSkew)) {
		return time.Time{}, false
	}
	return seen, err == nil
}

// older reports whether a start may have been left out of those that an update keeps. The others it would have, were they not taken back.
func older(at time.Time, starts []time.Time) bool {
	return len(starts) >= StartsKept && at.Before(slices.MinFunc(starts, time.Time.Compare))
}

// count adds to a tally what books don't have: updates that are there say themselves what they have done.
func (l ledger) count(t *tally, b *books, since time.Time) {
	for _, starts := range l.starts {
		for _, e := range starts {
			if r := b.entered(e); r == nil || older(e.At.Time, r.starts) {
				t.start(e.At.Time, since)
			}
		}
	}
	for _, e := range l.failures {
		if b.entered(e) == nil {
			t.failed++
			t.gone++
		}
	}
	l.countSoaks(t, b)
}

// see takes an update as it is, or was at last. What it says of itself counts.
func (l ledger) see(mu *refitv1.MachineUpdate, since time.Time) {
	uid, starts := string(mu.UID), make([]time.Time, len(mu.Status.Starts))
	for i, at := range mu.Status.Starts {
		starts[i] = at.Time
	}
	kept := slices.DeleteFunc(l.starts[uid], func(e refitv1.LedgerEntry) bool { return !older(e.At.Time, starts) })
	for _, at := range mu.Status.Starts {
		if !at.Time.Before(since) {
			kept = append(kept, refitv1.LedgerEntry{Machine: mu.Name, Update: uid, At: at})
		}
	}
	if l.starts[uid] = kept; len(kept) == 0 {
		delete(l.starts, uid)
	}
	if !HasFailed(mu) {
		delete(l.failures, uid)
		return
	}
	at := mu.CreationTimestamp
	if mu.Status.FinishedAt != nil {
		at = *mu.Status.FinishedAt
	}
	l.failures[uid] = refitv1.LedgerEntry{Machine: mu.Name, Update: uid, At: at}
}

// settle forgets the failures of Machines that are there, but for those that were seen just now: what has become of them they say themselves, and one
// that is no longer selected says nothing. made returns when a Machine was created, and whether it is there: a new one of the name is another one.
func (l ledger) settle(seen map[string]bool, made func(name string) (time.Time, bool, error)) error {
	for update, e := range l.failures {
		if seen[update] {
			continue
		}
		created, there, err := made(e.Machine)
		if err != nil {
			return fmt.Errorf("read Machine %s: %w", e.Machine, err)
		}
		if there && !created.After(e.At.Time) {
			delete(l.failures, update)
		}
	}
	return nil
}

// status returns what is known as a status has it. now bounds how old a failure may be.
func (l ledger) status(now time.Time, b Budget) *refitv1.Ledger {
	latest := func(all []refitv1.LedgerEntry, most int) []refitv1.LedgerEntry {
		slices.SortFunc(all, func(a, b refitv1.LedgerEntry) int {
			return cmp.Or(b.At.Compare(a.At.Time), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Update, b.Update))
		})
		return all[:min(len(all), most)]
	}
	out := &refitv1.Ledger{}
	if b.MaxStartsPerWindow > 0 || b.MinSpacing > 0 {
		out.Starts = latest(slices.Concat(slices.Collect(maps.Values(l.starts))...), mostStarts)
	}
	if b.StopAfterFailures > 0 {
		failures := slices.Collect(maps.Values(l.failures))
		failures = slices.DeleteFunc(failures, func(e refitv1.LedgerEntry) bool { return now.Sub(e.At.Time) > memory })
		out.Failures = latest(failures, mostFailures)
		out.GateFailures = l.soakFailures(now)
	}
	if len(out.Starts) == 0 && len(out.Failures) == 0 && len(out.GateFailures) == 0 {
		return nil
	}
	return out
}
