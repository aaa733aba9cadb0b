package node

import (
	"fmt"
	"strings"
	"time"
)

// DriftRequest is what the agent reads on its stdin for drift. It says nothing of what is desired: the node compares itself with
// its own record, so that nobody needs a Secret to ask.
type DriftRequest struct {
	// Protocol is the version of the wire format.
	Protocol int `json:"protocol"`
	// Machine is the Machine that the node belongs to.
	Machine MachineID `json:"machine"`
}

// DriftReport is how what a node shows differs from what was applied to it last. It contains no values.
type DriftReport struct {
	// Recorded reports whether the node has a record of what was applied. Without one nothing can be told.
	Recorded bool `json:"recorded"`
	// Digest identifies the specs that were applied last.
	Digest string `json:"digest,omitempty"`
	// RecordedAt is when they were, by the node's clock.
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	// UnderWay reports that a run is changing the node, so that nothing was compared.
	UnderWay bool `json:"underWay,omitempty"`
	// Drift lists what is not as it was applied.
	Drift []Drift `json:"drift,omitempty"`
	// Unknown lists what could not be compared, and why. It is not taken for unchanged.
	Unknown []Problem `json:"unknown,omitempty"`
}

// String names the resource and what differs, for example "/etc/motd (content, mode)".
func (d Drift) String() string { return fmt.Sprintf("%s (%s)", d.Ref, strings.Join(d.What, ", ")) }
