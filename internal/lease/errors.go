package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNoNode is returned when the Machine has no nodeRef yet. Try again later.
	ErrNoNode = errors.New("the Machine has no node yet")
	// ErrNodeGone is returned when there is no Node of the name in the Machine's nodeRef.
	ErrNodeGone = errors.New("the Node is gone")
	// ErrNodeReplaced is returned when a Node of the same name is another object than the one that the operation began with.
	// What is known of the former says nothing about it: abort.
	ErrNodeReplaced = errors.New("the Node was registered again")
	// ErrMachineReplaced is the same for the Machine.
	ErrMachineReplaced = errors.New("the Machine was made again")
	// ErrLost is returned when a lease is no longer the one that was acquired. It stays lost: stop, and acquire again.
	ErrLost = errors.New("the node lease is lost")
	// ErrUnrenewed is returned when a lease may be ours, but was not renewed for so long that nothing that disturbs may start.
	// Renewing it cures that.
	ErrUnrenewed = errors.New("the node lease was not renewed for too long")
)

// HeldError is returned when the node is somebody else's, or is not to be touched. It is an answer and no failure: try again
// after RetryAfter.
type HeldError struct {
	// Holder, Since and Message are those of the first hold; Message tells about all of them.
	Holder  string
	Since   time.Time
	Message string
	// RetryAfter has a jitter, so that those who wait for the same thing do not come together.
	RetryAfter time.Duration
	// Holds are all that were found, the node lease first.
	Holds []Hold
	// cause is the API server's answer when somebody else was faster.
	cause error
}

func (e *HeldError) Error() string { return e.Message }

// Unwrap returns what the API server said when somebody else was faster: a conflict, or that the lease exists, or that it no
// longer does.
func (e *HeldError) Unwrap() error { return e.cause }

// ClockError is returned when this machine's clock is too far from the API server's. A renewTime that readers find in the
// future, or long past, protects nothing: medik8s takes such leases.
type ClockError struct {
	// Ahead is how far this clock is ahead at most; it is negative when it is behind.
	Ahead time.Duration
}

func (e *ClockError) Error() string {
	word, by := "ahead of", e.Ahead
	if by < 0 {
		word, by = "behind", -by
	}
	return fmt.Sprintf("the clock here is up to %s %s that of the workload cluster's API server, and may be %s: no node lease is acquired until the clocks agree", by.Round(time.Second), word, Tolerance)
}
