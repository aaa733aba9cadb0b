// Package resync says when something is looked at that nothing has woken. What is woken by events needs no more than that as a net: for an event that
// nobody has thought of.
package resync

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Every is how long after a look the next one comes at the latest.
const Every = 10 * time.Minute

// In returns when to look again: in 7.5 to 10 minutes, so that many that begin together do not stay together.
func In() time.Duration { return Within(Every) }

// Within returns a time from three quarters of d to d, for the same reason.
func Within(d time.Duration) time.Duration { return wait.Jitter(d*3/4, 1.0/3) }

// Seldom is the slowest pace of Beat.
const Seldom = 8 * time.Minute

// Beat returns in which time those who share what a look costs look again together: at the first beat of their group that is half of a pace away or more,
// and so within half of it to one and a half. A pace is Seldom halved some times. The beats of slow paces are among those of quick ones, and each group has
// its own.
func Beat(now time.Time, group string, pace time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(group)) // a hash takes everything
	own := time.Duration(hash.Sum32()) * time.Millisecond % Seldom
	past := time.Duration(now.UnixNano()+int64(own)) % pace
	if in := pace - past; in >= pace/2 {
		return in
	}
	return 2*pace - past
}
