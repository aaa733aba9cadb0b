package changemanagement

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// toldBy is what people were told, in all tests, by decisions that are closed: by their digests.
var toldBy sync.Map

// requireTold demands that decisions with the same digest tell the same. Who can't read a policy is told the error that the version of it has,
// and policies of tests have no versions.
func requireTold(t testing.TB, d Decision) {
	t.Helper()
	if d.Open || d.Reason == schedule.InvalidPolicy {
		return
	}
	text := d.Message
	if d.Due != nil {
		text += "; " + d.Due.String()
	}
	was, _ := toldBy.LoadOrStore(d.Digest(), text)
	require.Equal(t, was, text, "the digest is the same: %s", d.Digest())
}

// TestDigest demands that each fact which people are told of makes another digest.
func TestDigest(t *testing.T) {
	base := func() Decision {
		return Decision{
			Decision: schedule.Decision{Reason: schedule.OutsideWindow, ClosedBy: []string{"a"}, Window: &schedule.Window{Start: inside}},
			Policies: read(saturdays("a")), said: Overrides{{Kind: "permissive-until", Object: "Machine m", Value: "true"}},
			Due:    &Due{At: inside, Cause: refitv1.WaitingDeadline, Policy: "a", then: &Due{At: closes}},
			limits: []string{"a", "maxConcurrent", "1"},
		}
	}
	same, reworded := base(), base()
	reworded.Message, reworded.Policies, reworded.NextChangeETASeconds, reworded.LookIn = "in other words", nil, 7, time.Hour
	require.Equal(t, same.Digest(), reworded.Digest(), "words and what is left of a time make none")
	seen := map[string]string{same.Digest(): "as it was"}
	for name, change := range map[string]func(*Decision){
		"the reason":               func(d *Decision) { d.Reason = schedule.Excluded },
		"who closes it":            func(d *Decision) { d.ClosedBy = []string{"a (freeze)"} },
		"how long it takes":        func(d *Decision) { d.Required = time.Hour },
		"when it opens":            func(d *Decision) { d.Window = &schedule.Window{Start: closes} },
		"an override's reason":     func(d *Decision) { d.said[0].Reason = "CVE-2026-1" },
		"since when there is one":  func(d *Decision) { d.said[0].since = inside },
		"an override that goes":    func(d *Decision) { d.said = nil },
		"who holds it firmly":      func(d *Decision) { d.HeldBy = d.Policies },
		"a deadline":               func(d *Decision) { d.Due.At = closes },
		"the deadline after that":  func(d *Decision) { d.Due.then = nil },
		"a deadline that is near":  func(d *Decision) { d.Near = true },
		"which budget is used up":  func(d *Decision) { d.limits = []string{"b", "maxConcurrent", "1"} },
		"how much of it there was": func(d *Decision) { d.limits = []string{"a", "maxConcurrent", "2"} },
	} {
		d := base()
		change(&d)
		require.Empty(t, seen[d.Digest()], name)
		seen[d.Digest()] = name
	}
	invalid := base()
	invalid.Reason = schedule.InvalidPolicy
	before := invalid.Digest()
	invalid.Policies[0].Generation++
	require.NotEqual(t, before, invalid.Digest(), "a policy that can't be read tells another error when it was edited")
}

// TestTheDigestTellsHowAnOverrideIsTaken demands another digest for each thing that is told of the same override.
func TestTheDigestTellsHowAnOverrideIsTaken(t *testing.T) {
	value := outside.Add(10 * 24 * time.Hour).Format(time.RFC3339)
	noted := Override{Kind: kindOf(refitv1.PermissiveUntilAnnotation), Object: "Machine m", Value: value, since: outside}
	decide := func(now time.Time, o Override, edits ...edit) Decision {
		return Decide(now, &Candidate{Overrides: Overrides{o}}, read(saturdays("a", edits...)), Change{})
	}
	ever := noted
	ever.Value = always
	firm := func(now time.Time) Decision {
		policies := read(saturdays("a"))
		policies[0].Firm = true
		return Decide(now, &Candidate{Overrides: Overrides{ever}}, policies, Change{})
	}
	for name, of := range map[string][2]Decision{
		"as far ahead as policies allow": {decide(outside, noted, maxOverride("24h")), decide(outside, noted, maxOverride("48h"))},
		"which is over meanwhile":        {firm(outside.Add(time.Hour)), firm(outside.Add(defaultMaxOverride + time.Hour))},
	} {
		require.False(t, of[0].Open, name)
		require.False(t, of[1].Open, name)
		require.NotEqual(t, of[0].Message, of[1].Message, name)
		require.NotEqual(t, of[0].Digest(), of[1].Digest(), "%s: %s", name, of[1].Message)
	}
}

// TestTheDigestTellsWhatComesAfterAStop demands another digest for each thing that holds a change back when a stop is over.
func TestTheDigestTellsWhatComesAfterAStop(t *testing.T) {
	for _, kind := range []string{refitv1.RestrictiveUntilAnnotation, refitv1.NotBeforeAnnotation} {
		stop := Override{Kind: kindOf(kind), Object: "Machine m", Value: outside.Add(time.Hour).Format(time.RFC3339)}
		seen := map[string]string{}
		for _, p := range []*refitv1.ChangeManagementPolicy{never("a"), policy("a", schedule.ManualStrategy), saturdays("a", expects("30h"))} {
			d := Decide(outside, &Candidate{Overrides: Overrides{stop}}, read(p), Change{})
			require.False(t, d.Open)
			require.Empty(t, seen[d.Digest()], d.Message)
			seen[d.Digest()] = d.Message
		}
	}
}
