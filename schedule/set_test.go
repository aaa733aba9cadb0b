package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// instants bounds the sets that are drawn, so that each instant can be asked about.
const instants = 60

func drawSet(t *rapid.T, label string) set {
	var u union
	for range rapid.IntRange(0, 4).Draw(t, label) {
		start := rapid.Int64Range(-5, instants).Draw(t, "start")
		u = append(u, span{start, start + rapid.Int64Range(-1, 20).Draw(t, "length")})
	}
	if rapid.Bool().Draw(t, "joined") {
		var ss []span
		for _, s := range u {
			ss = append(ss, s.(span))
		}
		return spans(joined(ss))
	}
	return u
}

// members asks about each instant alone, so that it does not trust what the answers say about when they change.
func members(s set) (in [instants]bool) {
	for t := range int64(instants) {
		in[t], _ = s.at(t, t)
	}
	return in
}

func TestLawsOfSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawSet(t, "a"), drawSet(t, "b"), drawSet(t, "c")
		inA, inB := members(a), members(b)
		for i, in := range members(difference{a, b}) {
			require.Equal(t, inA[i] && !inB[i], in, "a - b")
		}
		for i, in := range members(union{a, b}) {
			require.Equal(t, inA[i] || inB[i], in, "a + b")
		}
		for i, in := range members(intersection{a, b}) {
			require.Equal(t, inA[i] && inB[i], in, "a and b")
		}
		require.Equal(t, members(intersection{a, b}), members(difference{a, difference{a, b}}), "a and b = a - (a - b)")
		require.Equal(t, members(difference{a, union{b, c}}), members(difference{difference{a, b}, c}), "a - (b + c) = a - b - c")
		require.Equal(t, inA, members(difference{a, union(nil)}), "a - nothing = a")
		require.Equal(t, inA, members(intersection{a, everything{}}), "a and everything = a")
		require.Equal(t, [instants]bool{}, members(difference{a, a}), "a - a = nothing")

		for _, s := range []set{a, union{a, b, c}, intersection{a, union{b, c}}, difference{union{a, b}, c}} {
			requireAnswersHold(t, s)
		}
	})
}

func requireAnswersHold(t *rapid.T, s set) {
	const limit = 50
	in := members(s)
	for i := range int64(instants) {
		got, until := s.at(i, limit)
		require.Equal(t, in[i], got)
		require.Greater(t, until, i)
		for j := i; j < min(until, limit+1); j++ {
			require.Equal(t, in[i], in[j], "at %d is said to hold until %d", i, until)
		}
		if i == 0 {
			continue
		}
		got, since := s.before(i, 0)
		require.Equal(t, in[i-1], got)
		require.Less(t, since, i)
		for j := max(since, 0); j < i; j++ {
			require.Equal(t, in[i-1], in[j], "before %d is said to hold since %d", i, since)
		}
	}
}
