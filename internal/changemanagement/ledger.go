package changemanagement

import (
	"cmp"
	"slices"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Bounds of a ledger, as the CustomResourceDefinition has them.
const (
	mostStarts   = 500
	mostFailures = 100
)

// ledger is what counts against the budget of a policy besides the MachineUpdates that there are: they go with their Machines, and who replaces
// one that has failed must not have the next one fail, too.
type ledger struct {
	starts, failures []refitv1.LedgerEntry
}

// ledgerOf returns the ledger of a policy, with updates that are gone and may not be in it yet.
func ledgerOf(p *refitv1.ChangeManagementPolicy, gone []*refitv1.MachineUpdate) ledger {
	var k keeper
	if l := p.Status.Ledger; l != nil {
		k.starts, k.failures = slices.Clone(l.Starts), slices.Clone(l.Failures)
	}
	for _, mu := range gone {
		k.see(mu)
	}
	// Those that somebody has looked at count no more.
	if seen, err := time.Parse(time.RFC3339, p.Annotations[refitv1.FailuresSeenAnnotation]); err == nil {
		k.failures = slices.DeleteFunc(k.failures, func(e refitv1.LedgerEntry) bool { return !e.At.After(seen) })
	}
	return ledger{starts: k.starts, failures: k.failures}
}

// count adds to a tally what is not among records: those say themselves what they have done.
func (l ledger) count(t *tally, records []record, since time.Time) {
	if len(l.starts) == 0 && len(l.failures) == 0 {
		return
	}
	known := make(map[string]record, len(records))
	for _, r := range records {
		known[string(r.uid)] = r
	}
	for _, e := range l.starts {
		r, ok := known[e.Update]
		if ok && slices.ContainsFunc(r.starts, e.At.Time.Equal) {
			continue
		}
		if !e.At.Time.Before(since) {
			t.starts++
		}
		if e.At.After(t.last) {
			t.last = e.At.Time
		}
	}
	for _, e := range l.failures {
		if _, ok := known[e.Update]; !ok {
			t.failed++
			t.gone++
		}
	}
}

// keeper brings a ledger up to date.
type keeper struct {
	since            time.Time // starts count from then on
	starts, failures []refitv1.LedgerEntry
}

// newKeeper returns a keeper of a policy's ledger, with updates that are gone.
func newKeeper(now time.Time, p *Policy, policy *refitv1.ChangeManagementPolicy, gone []*refitv1.MachineUpdate) *keeper {
	since, _ := p.period(now)
	if spaced := now.Add(-p.Budget.MinSpacing); spaced.Before(since) {
		since = spaced
	}
	before := ledgerOf(policy, gone)
	return &keeper{since: since, starts: before.starts, failures: before.failures}
}

// see takes an update of a Machine that is there. What it says of itself counts.
func (k *keeper) see(mu *refitv1.MachineUpdate) {
	entry := refitv1.LedgerEntry{Machine: mu.Name, Update: string(mu.UID)}
	for _, at := range mu.Status.Starts {
		entry.At = at
		if !at.Time.Before(k.since) && !slices.ContainsFunc(k.starts, func(e refitv1.LedgerEntry) bool { return e.Update == entry.Update && e.At.Equal(&at) }) {
			k.starts = append(k.starts, entry)
		}
	}
	k.failures = slices.DeleteFunc(k.failures, func(e refitv1.LedgerEntry) bool { return e.Update == string(mu.UID) })
	if HasFailed(mu) {
		if entry.At = mu.CreationTimestamp; mu.Status.FinishedAt != nil {
			entry.At = *mu.Status.FinishedAt
		}
		k.failures = append(k.failures, entry)
	}
}

// ledger returns what is known. now bounds how old a failure may be.
func (k *keeper) ledger(now time.Time, b Budget) *refitv1.Ledger {
	latest := func(all []refitv1.LedgerEntry, since time.Time, most int, wanted bool) []refitv1.LedgerEntry {
		if !wanted {
			return nil
		}
		all = slices.DeleteFunc(all, func(e refitv1.LedgerEntry) bool { return e.At.Time.Before(since) })
		slices.SortFunc(all, func(a, b refitv1.LedgerEntry) int {
			return cmp.Or(b.At.Compare(a.At.Time), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Update, b.Update))
		})
		return all[:min(len(all), most)]
	}
	out := &refitv1.Ledger{
		Starts:   latest(k.starts, k.since, mostStarts, b.MaxStartsPerWindow > 0 || b.MinSpacing > 0),
		Failures: latest(k.failures, now.Add(-memory), mostFailures, b.StopAfterFailures > 0),
	}
	if len(out.Starts) == 0 && len(out.Failures) == 0 {
		return nil
	}
	return out
}
