package shard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestANamespaceIsOfOneShard(t *testing.T) {
	counts := make([]int, 3)
	for i := range 3000 {
		counts[Of(fmt.Sprintf("team-%d", i), 3)]++
	}
	for _, n := range counts {
		require.InDelta(t, 1000, n, 150)
	}
	require.Zero(t, Of("any", 1))
}

func TestAnotherNumberOfShardsMovesNoMoreThanItHasTo(t *testing.T) {
	moved := 0
	for i := range 4000 {
		name := fmt.Sprintf("team-%d", i)
		before, after := Of(name, 3), Of(name, 4)
		if before != after {
			require.Equal(t, 3, after, "to the new one only")
			moved++
		}
	}
	require.InDelta(t, 1000, moved, 150)
}

// TestShares plays replicas that come and go, each of which does what it has planned, in any order, on what it sees.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := make([]string, rapid.IntRange(1, 9).Draw(t, "shards"))
		members := []string{"a"}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			if len(members) > 1 && rapid.Bool().Draw(t, "one dies") {
				i := rapid.IntRange(0, len(members)-1).Draw(t, "who")
				for s, h := range holders {
					if h == members[i] {
						holders[s] = ""
					}
				}
				members = slices.Delete(members, i, i+1)
			} else {
				members = append(members, fmt.Sprintf("%c%d", 'a'+rune(len(members)), rapid.IntRange(0, 999).Draw(t, "name")))
			}
			moves := settle(t, holders, members)
			require.LessOrEqual(t, moves, 2*len(holders)+2)
		}
	})
}

// settle has replicas act until none wants anything, and returns how often a shard was acquired.
func settle(t *rapid.T, holders, members []string) int {
	acquired := 0
	for range 200 {
		quiet := true
		for _, i := range rapid.Permutation(indexes(len(members))).Draw(t, "order") {
			p := share(members[i], holders, members)
			for _, s := range p.acquire {
				require.Empty(t, holders[s])
				holders[s] = members[i]
				acquired++
			}
			if p.release >= 0 {
				require.Equal(t, members[i], holders[p.release])
				holders[p.release] = ""
			}
			quiet = quiet && len(p.acquire) == 0 && p.release < 0
		}
		if quiet {
			requireFair(t, holders, members)
			return acquired
		}
	}
	t.Fatalf("they don't come to rest: %v", holders)
	return 0
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func requireFair(t *rapid.T, holders, members []string) {
	has := map[string]int{}
	for _, m := range members {
		has[m] = 0
	}
	for _, h := range holders {
		require.Contains(t, has, h, "each shard is held by who is there")
		has[h]++
	}
	least, most := len(holders), 0
	for _, n := range has {
		least, most = min(least, n), max(most, n)
	}
	require.LessOrEqual(t, most-least, 1, "%v", has)
}

func TestAShardIsLeftToWhoHasFewer(t *testing.T) {
	require.Equal(t, plan{release: -1}, share("a", []string{"a", ""}, []string{"a", "b"}))
	require.Equal(t, plan{acquire: []int{1}, release: -1}, share("b", []string{"a", ""}, []string{"a", "b"}))
	require.Equal(t, plan{release: -1}, share("a", []string{"a", "a", "b"}, []string{"a", "b"}), "one more is fair")
	require.Equal(t, plan{release: -1}, share("b", []string{"a", "a", "b", "b"}, []string{"a", "b", "c"}), "one at a time")
	require.GreaterOrEqual(t, share("a", []string{"a", "a", "b", "b"}, []string{"a", "b", "c"}).release, 0)
}
