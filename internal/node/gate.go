package node

// GateProtocol is the version of what server and gate say to each other. The gate is on the node before refit is, so that it must
// understand servers that are newer than itself.
const GateProtocol = 1

// GateCommand is what the server asks sshd to run on a node with a gate. No program has this name: sshd runs the gate in its place, since
// that is what the key or the certificate is bound to. Where it is not, nothing is run, and the server says so.
const GateCommand = "refit-node-gate-v1"

// DefaultGate is where the gate is on a node, and how it is called.
const DefaultGate = "/usr/local/sbin/refit-node gate"

// GateVerb is what a gate is asked to do.
type GateVerb string

// The verbs.
const (
	// GateHello asks what the node is.
	GateHello GateVerb = "Hello"
	// GatePush brings an agent. Its bytes follow the request.
	GatePush GateVerb = "Push"
	// GateRun runs an agent. What it reads on its stdin follows the request.
	GateRun GateVerb = "Run"
)

// GateRequest is the first line that a gate reads on its stdin.
type GateRequest struct {
	// Gate is the GateProtocol.
	Gate int      `json:"gate"`
	Do   GateVerb `json:"do"`
	// Agents are the digests of the server's agents by architecture, of which GateRun runs the one for the node.
	Agents map[string]string `json:"agents,omitempty"`
	// Verb is what the agent is told to do.
	Verb string `json:"verb,omitempty"`
	// Size and Signature are of the agent that GatePush brings.
	Size      int64           `json:"size,omitempty"`
	Signature *AgentSignature `json:"signature,omitempty"`
}

// GateVerbs are what an agent can be told to do through a gate.
var GateVerbs = []string{"version", "plan", "stage", "apply", "status", "drift"}

// GateInfo is what a gate says about itself.
type GateInfo struct {
	Protocol     int    `json:"protocol"`
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	// RollbackIndex is the lowest that an agent may have.
	RollbackIndex int64 `json:"rollbackIndex"`
	// Agents are the digests of those that are there. They are verified when they are run.
	Agents []string `json:"agents,omitempty"`
}
