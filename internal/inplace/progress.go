package inplace

import "time"

// Progress is how an update, or what holds it back, stands.
type Progress struct {
	// Done reports that the node shows what is desired, or that an upgrade may go on. Cluster API then does not ask again.
	Done bool
	// Message is for people. The same state gives the same message.
	Message string
	// RetryAfter is when to ask again. It is rounded up to seconds and counts as one second at least unless Done.
	RetryAfter time.Duration
}
