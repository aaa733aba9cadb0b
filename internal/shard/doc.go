// Package shard divides a fleet among the replicas of refit. A shard has some of the namespaces; the replica that holds its Lease works on what
// is in them, and each replica answers hooks for all. Budgets, slots and node leases are those of a namespace or of a cluster in it, so
// that shards have nothing in common. See docs/adr/0034-shards-have-namespaces.md.
package shard

import (
	"encoding/binary"
	"hash/fnv"
)

// Of returns which of so many shards, counted from 0, a namespace belongs to, by rendezvous hashing: another number of shards moves no more
// namespaces than it has to.
func Of(namespace string, shards int) int {
	best, most := 0, uint64(0)
	for i := range shards {
		if s := score(namespace, i); s > most {
			best, most = i, s
		}
	}
	return best
}

// score is how well a name and a shard suit each other: at random, and the same for all who ask.
func score(name string, i int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
	_, _ = h.Write([]byte(name))
	// FNV's last bytes reach few of its bits: mix them, as SplitMix64 ends.
	s := h.Sum64()
	s = (s ^ s>>30) * 0xbf58476d1ce4e5b9
	s = (s ^ s>>27) * 0x94d049bb133111eb
	return s ^ s>>31
}
