// Package resync says when something is looked at that nothing has woken. What is woken by events needs no more than that as a net: for an event that
// nobody has thought of.
package resync

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Every is how long after a look the next one comes at the latest.
const Every = 10 * time.Minute

// In returns when to look again: in 7.5 to 10 minutes, so that many that begin together do not stay together.
func In() time.Duration { return Within(Every) }

// Within returns a time from three quarters of d to d, for the same reason.
func Within(d time.Duration) time.Duration { return wait.Jitter(d*3/4, 1.0/3) }
