package shard

import (
	"cmp"
	"maps"
	"slices"
)

// plan is which shards a replica tries to acquire, and which one it releases, -1 for none.
type plan struct {
	acquire []int
	release int
}

// share plans what a replica does so that all shards are held, each replica has as many as any other, or one more, and no shard moves
// without need. holders has who holds each shard, "" for nobody; members are the replicas there are, self among them.
func share(self string, holders, members []string) plan {
	has := count(self, holders, members)
	var free, mine []int
	for shard, holder := range holders {
		switch holder {
		case "":
			free = append(free, shard)
		case self:
			mine = append(mine, shard)
		}
	}
	least := slices.Min(slices.Collect(maps.Values(has)))
	p := plan{release: -1}
	switch {
	case len(free) > 0 && len(mine) == least: // who has more leaves them to others
		most := (len(holders) + len(has) - 1) / len(has)
		slices.SortFunc(free, func(a, b int) int { return cmp.Compare(score(self, b), score(self, a)) })
		p.acquire = free[:min(len(free), max(0, most-len(mine)))]
	case len(free) == 0 && len(mine) >= least+2 && self == richest(has):
		p.release = slices.MinFunc(mine, func(a, b int) int { return cmp.Compare(score(self, a), score(self, b)) })
	}
	return p
}

// count returns how many shards each replica has that is there.
func count(self string, holders, members []string) map[string]int {
	has := map[string]int{self: 0}
	for _, m := range members {
		has[m] = 0
	}
	for _, holder := range holders {
		if _, member := has[holder]; member {
			has[holder]++
		}
	}
	return has
}

// richest returns the member that has most shards, the first by name of several.
func richest(has map[string]int) string {
	best := ""
	for m, n := range has {
		if best == "" || n > has[best] || n == has[best] && m < best {
			best = m
		}
	}
	return best
}
