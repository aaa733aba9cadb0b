package changemanagement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/schedule"
)

// startOf returns when the window of a Saturday opens for a Machine.
func startOf(t testing.TB, opens time.Time, s *Candidate, policies []*Policy, c Change) time.Time {
	d := Decide(opens, s, policies, c)
	if d.Open {
		return opens
	}
	require.Equal(t, schedule.OutsideWindow, d.Reason)
	start := opens.Add(time.Duration(d.NextChangeETASeconds) * time.Second)
	require.Contains(t, d.Message, "jitter")
	require.Contains(t, d.Message, text(start))
	require.Zero(t, d.PermissiveRemainingSeconds)
	require.False(t, Decide(start.Add(-time.Second), s, policies, c).Open)
	require.True(t, Decide(start, s, policies, c).Open)
	return start
}

func candidate(uid string) *Candidate {
	return &Candidate{Subject: inplace.Subject{Namespace: "fleet", Cluster: "c1"}, Role: refitv1.WorkerRole, UID: types.UID(uid)}
}

func TestJitterSpreadsTheStarts(t *testing.T) {
	policies := read(saturdays("a", jitter("1h")))
	const machines, parts = 1000, 6
	var perPart [parts]int
	other := 0
	for i := range machines {
		s := candidate(fmt.Sprintf("6a2f3b0c-0000-4000-8000-%012d", i))
		start := startOf(t, opened, s, policies, Change{})
		delay := start.Sub(opened)
		require.Less(t, delay, time.Hour)
		perPart[delay/(10*time.Minute)]++
		require.Equal(t, start, startOf(t, opened, s, policies, Change{}), "it is the same whenever it is asked")
		nextWeek := opened.Add(7 * 24 * time.Hour)
		if startOf(t, nextWeek, s, policies, Change{}).Sub(nextWeek) != delay {
			other++
		}
	}
	for i, n := range perPart {
		require.InDelta(t, machines/parts, n, 60, "machines that start in part %d of the jitter", i)
	}
	require.Greater(t, other, machines*9/10, "the next window has another order")
}

func TestWhatStartsLateStillFits(t *testing.T) {
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		change   Change
		longest  time.Duration // from the start of the window
	}{
		"by what the policy expects":                    {some(saturdays("a", jitter("8h"), expects("6h"))), Change{}, 2 * time.Hour},
		"by what was measured":                          {some(saturdays("a", jitter("8h"), expects("1m"))), Change{Expected: 6 * time.Hour}, 2 * time.Hour},
		"by what was measured to be less":               {some(saturdays("a", jitter("2h"), expects("7h"))), Change{Expected: time.Minute}, 2 * time.Hour},
		"by what another policy expects":                {some(saturdays("a", jitter("8h")), saturdays("b", expects("6h"))), Change{}, 2 * time.Hour},
		"by what another policy expects, the other way": {some(saturdays("a", expects("6h")), saturdays("b", jitter("8h"), expects("1h"))), Change{}, 2 * time.Hour},
		"without an expectation":                        {some(saturdays("a", jitter("20h"))), Change{}, 8 * time.Hour},
		"in what is as long as the work, at once":       {some(saturdays("a", jitter("1h"), expects("8h"))), Change{}, 0},
		"with a warning only, in what is long enough":   {some(saturdays("a", jitter("8h"), expects("6h"), func(s *spec) { s.Fit = schedule.FitWarn })), Change{}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			policies := read(tc.policies...)
			var latest time.Duration
			for i := range 300 {
				delay := startOf(t, opened, candidate(fmt.Sprint(i)), policies, tc.change).Sub(opened)
				require.LessOrEqual(t, delay, tc.longest)
				latest = max(latest, delay)
			}
			require.GreaterOrEqual(t, latest, tc.longest*9/10, "they are spread over all of it")
		})
	}
}

func TestJitterHasABeginning(t *testing.T) {
	forever := func(s *spec) { s.MaintenanceSchedule.Permit[0] = schedule.Permit{Recurrence: "FREQ=DAILY"} }
	for name, p := range map[string]*refitv1.ChangeManagementPolicy{
		"a policy that is always open":      anytime("a", jitter("10h")),
		"windows that touch without an end": saturdays("a", jitter("10h"), forever),
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(inside, candidate("uid"), read(p), Change{})
			require.True(t, d.Open, d.Message)
			require.Equal(t, schedule.Open, d.Reason)
		})
	}
}

func TestTheLongestJitterOfThePoliciesCounts(t *testing.T) {
	s := candidate("uid-1")
	alone := func(p *refitv1.ChangeManagementPolicy) time.Time { return startOf(t, opened, s, read(p), Change{}) }
	short, long := saturdays("a", jitter("1m")), saturdays("b", jitter("4h"))
	both := startOf(t, opened, s, read(short, long), Change{})
	require.Equal(t, alone(long), both)
	require.False(t, both.Before(alone(short)))
}

// TestWhatHasOpenedStaysOpen draws policies and a Machine, and goes through windows minute by minute: an update that may start
// may do so until the window ends, or what is left of it is too short.
func TestWhatHasOpenedStaysOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.IntRange(1, 600).Draw(t, "length")) * time.Minute
		minutes := func(label string, most int) string { return fmt.Sprintf("%dm", rapid.IntRange(1, most).Draw(t, label)) }
		var all []*refitv1.ChangeManagementPolicy
		for i := range rapid.IntRange(1, 3).Draw(t, "policies") {
			p := saturdays(fmt.Sprint(i), func(s *spec) { s.MaintenanceSchedule.Permit[0].Duration = length.String() })
			if rapid.Bool().Draw(t, "has jitter") {
				p.Spec.Jitter = minutes("jitter", 700)
			}
			if rapid.Bool().Draw(t, "expects") {
				p.Spec.ExpectedDuration = minutes("expected", 700)
			}
			p.Spec.Fit = rapid.SampledFrom([]schedule.Fit{schedule.FitRequired, schedule.FitWarn, schedule.FitOff}).Draw(t, "fit")
			all = append(all, p)
		}
		policies := read(all...)
		s := candidate(rapid.StringN(1, 8, -1).Draw(t, "uid"))
		c := Change{Expected: time.Duration(rapid.IntRange(0, 2).Draw(t, "measured")) * 50 * time.Minute}
		without := read(all...) // the same ones without jitter
		for _, p := range without {
			p.Jitter = 0
		}
		started, promised, could := false, false, false
		for now := opened.Add(-time.Minute); !now.After(opened.Add(length)); now = now.Add(time.Minute) {
			d, plain := Decide(now, s, policies, c), Decide(now, s, without, c)
			could = could || plain.Open
			require.False(t, d.Open && !plain.Open, "jitter opens nothing")
			require.False(t, started && !d.Open && plain.Open, "%s: it was open before: %s", text(now), d.Message)
			started = started || d.Open
			if !d.Open && d.NextChangeETASeconds > 0 {
				at := now.Add(time.Duration(d.NextChangeETASeconds) * time.Second)
				if at.Before(opened.Add(length)) && plain.Open {
					require.True(t, Decide(at, s, policies, c).Open, "%s promises %s", text(now), text(at))
					promised = true
				}
			}
		}
		require.Equal(t, could, started || promised, "what fits into the window starts in it")
	})
}

// TestJitterMovesLittleWithTheMeasurement has the expectation change while a window is open: a start may move by as much, and
// not to anywhere.
func TestJitterMovesLittleWithTheMeasurement(t *testing.T) {
	policies := read(saturdays("a", jitter("8h")))
	for i := range 100 {
		s := candidate(fmt.Sprint(i))
		before := startOf(t, opened, s, policies, Change{Expected: time.Hour})
		after := startOf(t, opened, s, policies, Change{Expected: time.Hour + 7*time.Second})
		require.LessOrEqual(t, before.Sub(after).Abs(), 7*time.Second)
	}
}
