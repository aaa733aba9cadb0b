package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/disruption"
)

// StepSoak is the step of a run in which all is done, and the node is watched before that counts as a success.
const StepSoak = "watch the node"

// Protocol is the version of the wire format. Server and agent must have the same one; they do, because the server brings
// the agent along.
const Protocol = 3

// ConflictPolicy says what to do with a file that both the specification and somebody on the node have changed.
type ConflictPolicy string

// The conflict policies.
const (
	// Overwrite keeps a copy of what was on the node and writes what the specification says.
	Overwrite ConflictPolicy = "Overwrite"
	// Refuse changes nothing at all and says which file is in conflict.
	Refuse ConflictPolicy = "Refuse"
)

// Request is what the agent reads on its stdin for plan and apply.
type Request struct {
	// Protocol is the version of the wire format.
	Protocol int `json:"protocol"`
	// Machine is the Machine that the node belongs to.
	Machine MachineID `json:"machine"`
	// Digest identifies the desired specs. What was applied is recorded under it.
	Digest string `json:"digest"`
	// Token fences: the node refuses a token lower than the highest it has seen. Not read by plan.
	Token int64 `json:"token,omitempty"`
	// Resources is all that the specs want on the node.
	Resources []Resource `json:"resources"`
	// Baseline is what bootstrap laid down. It counts as long as the node has no record of its own. Nil: not known.
	Baseline *Baseline `json:"baseline,omitempty"`
	// Rules say what a change takes.
	Rules disruption.Rules `json:"rules"`
	// Login is how the server comes in. No change may close that way.
	Login Login `json:"login,omitzero"`
	// Source is where another version of Kubernetes comes from. Nil: nowhere, and one that is not on the node can't be brought.
	Source *Source `json:"source,omitempty"`
	// OnConflict says what to do with a file that was changed on both sides.
	OnConflict ConflictPolicy `json:"onConflict"`
	// Repair reports that what differs from the record is brought back as if the specs had changed it. Without a record it says nothing.
	Repair bool `json:"repair,omitempty"`
	// UnderWay reports that work for the digest was seen under way: it is taken to its end. If it has ended meanwhile that is the answer, and
	// nothing begins again.
	UnderWay bool `json:"underWay,omitempty"`
	// Permitted are the actions of the plan by which it was decided that the work may begin: what takes another one does not begin. Nil: any may.
	// Not read by plan.
	Permitted []disruption.Action `json:"permitted,omitzero"`
	// Quiet reports that nothing which disturbs the node is permitted. Not read by plan.
	Quiet bool `json:"quiet,omitempty"`
	// NoteFor is the name of the UpdaterRegistration that is about to be called: the node notes what of it works, for the run that comes after,
	// and apply does nothing else. Its answer is Idle. Not read by plan.
	NoteFor string `json:"noteFor,omitempty"`
	// WaitSeconds is how long apply waits for the end before it answers with what is under way. 0: not at all.
	WaitSeconds int `json:"waitSeconds,omitempty"`
}

// MachineID names a Machine so that a node can tell whether it is meant.
type MachineID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Former are UIDs that the Machine had in management clusters from which it was moved: the node knows it by one of them until it is
	// updated again.
	Former []string `json:"former,omitempty"`
}

// Is reports whether a node that knows the Machine known is that of m.
func (m MachineID) Is(known MachineID) bool {
	return m.UID == known.UID || slices.Contains(m.Former, known.UID)
}

// Now returns the Machine by the UID that it has now alone.
func (m MachineID) Now() MachineID {
	m.Former = nil
	return m
}

// File is a regular file.
type File struct {
	// Path is absolute and clean.
	Path string `json:"path"`
	// Content is the file's bytes, decoded.
	Content []byte `json:"content"`
	// Owner is "user:group", both by name or number.
	Owner string `json:"owner"`
	// Mode is the permissions, in octal: "0644".
	Mode string `json:"mode"`
	// FromSecret reports that the content comes from a Secret, which may have changed while the specs did not. A repair brings it only as
	// it was applied.
	FromSecret bool `json:"fromSecret,omitempty"`
	// Unmanaged reports that the specs name the file, but that it is not made in place: it is left as it is, and it is not
	// taken for removed. Of the other fields only Path is set.
	Unmanaged bool `json:"unmanaged,omitempty"`
}

// Baseline is what the machine's bootstrap data laid down on the node when it was made.
type Baseline struct {
	Files []BaselineFile `json:"files"`
	// Resources are those of other kinds, as far as the bootstrap data tells.
	Resources []Resource `json:"resources,omitempty"`
}

// BaselineFile is a file of the bootstrap data, without its bytes.
type BaselineFile struct {
	Path string `json:"path"`
	// SHA256 is the digest of the bytes, in hex.
	SHA256 string `json:"sha256"`
	Owner  string `json:"owner"`
	Mode   string `json:"mode"`
}

// Plan is what apply would do. Planning changes nothing on the node.
type Plan struct {
	Digest string `json:"digest"`
	// Changes are in the order in which they would be made. Empty: the node shows all that is desired.
	Changes []Change `json:"changes,omitempty"`
	// Actions are run after all changes, merged and in order.
	Actions []disruption.Action `json:"actions,omitempty"`
	// Drift lists what differs from the record on the node although the specs did not change it. It is left alone.
	Drift []Drift `json:"drift,omitempty"`
	// Stage lists what has to be on the node before the plan can be applied: Stage brings it, which disturbs nothing.
	Stage []string `json:"stage,omitempty"`
	// Blocked says what keeps the plan from being applied. Nothing is applied while there is an entry.
	Blocked []Problem `json:"blocked,omitempty"`
	// Notes are remarks for people, for example that there was no baseline.
	Notes []string `json:"notes,omitempty"`
}

// Operation is what happens to a resource.
type Operation string

// The operations.
const (
	// Write creates a resource or makes it what is desired.
	Write Operation = "Write"
	// Remove takes away a resource: a file that was not there before it was first applied.
	Remove Operation = "Remove"
	// Restore puts back the file that was there before another was first applied over it.
	Restore Operation = "Restore"
)

// Change is one change to a resource.
type Change struct {
	Ref
	Operation Operation `json:"operation"`
	// Conflict reports that somebody on the node had changed the resource too. A copy of their file is kept.
	Conflict bool `json:"conflict,omitempty"`
	// Switches reports that the change starts or stops a unit, beside what its actions do.
	Switches bool `json:"switches,omitempty"`
	// Actions is what this change takes.
	Actions []disruption.Action `json:"actions,omitempty"`
}

// Drift is a resource that no longer is what was applied last.
type Drift struct {
	Ref
	// What differs: of a file "content", "mode", "owner" or "missing". It contains no values.
	What []string `json:"what"`
}

// Problem is a reason why something can't be done.
type Problem struct {
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
	// Ruled reports that it is the rules which do not let the change be made, so that a policy can.
	Ruled bool `json:"ruled,omitempty"`
}

// ProblemOf returns what an error says that is in the way of something.
func ProblemOf(path string, err error) Problem {
	var rule *disruption.RuleError
	return Problem{Path: path, Reason: err.Error(), Ruled: errors.As(err, &rule)}
}

// Problems returns a list of problems as one text.
func Problems(list []Problem) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.Reason
		if p.Path != "" && !strings.Contains(p.Reason, p.Path) {
			texts[i] = p.Path + ": " + p.Reason
		}
	}
	return strings.Join(texts, "; ")
}

// RunState is how far a run of the agent has come.
type RunState string

// The states of a run.
const (
	// Idle means that nothing runs and that nothing has run for the digest.
	Idle RunState = "Idle"
	// Running means that the work is under way.
	Running RunState = "Running"
	// Succeeded means that all was done and that the node shows it.
	Succeeded RunState = "Succeeded"
	// Failed means that the work stopped. Message says why, RolledBack whether the node is as it was.
	Failed RunState = "Failed"
)

// StatusRequest is what the agent reads on its stdin for status.
type StatusRequest struct {
	Protocol int       `json:"protocol"`
	Machine  MachineID `json:"machine"`
	Digest   string    `json:"digest"`
	// WaitSeconds is how long to wait for the end of a run before answering. 0: not at all. A run that awaits a login is not waited for.
	WaitSeconds int `json:"waitSeconds,omitempty"`
	// Confirm reports that the request came by a login that was made for it, with a connection of its own. The run with the Token, which
	// awaits that, then goes on.
	Confirm bool  `json:"confirm,omitempty"`
	Token   int64 `json:"token,omitempty"`
}

// Status is how a run stands. It holds no content of files.
type Status struct {
	State  RunState `json:"state"`
	Digest string   `json:"digest,omitempty"`
	// Token is the one the run was started with.
	Token int64 `json:"token,omitempty"`
	// Step is the current or last step, for example "restart kubelet.service".
	Step string `json:"step,omitempty"`
	// Done and Total count steps.
	Done    int    `json:"done,omitempty"`
	Total   int    `json:"total,omitempty"`
	Message string `json:"message,omitempty"`
	// Interrupted reports that nobody works on a run under way: the node was rebooted, for example. Apply takes it up again at
	// the first step that is not done.
	Interrupted bool `json:"interrupted,omitempty"`
	// Resumes reports that the node takes up by itself a run that is interrupted, in less than a minute: the run has not ended.
	Resumes bool `json:"resumes,omitempty"`
	// Rebooting reports that the node was asked to reboot and has not come back: wait for it. A run is not interrupted as long as
	// it is rebooting; it is once the node has been booted, or when the reboot does not come.
	Rebooting bool `json:"rebooting,omitempty"`
	// AwaitsLogin reports that the run has done something that can close the way by which the server comes in, and is rolled back unless a
	// request with Confirm and the run's Token comes in time, by a login of its own.
	AwaitsLogin bool `json:"awaitsLogin,omitempty"`
	// RolledBack reports that a failed run has put everything back. It is false when the files were put back but the node has
	// been booted with the new ones: what read them then goes on with them.
	RolledBack bool `json:"rolledBack,omitempty"`
	// NeedsReboot reports that a failed run has left what it wrote, for the node to read it when it boots: the next run has it reboot.
	NeedsReboot bool                `json:"needsReboot,omitempty"`
	Changes     []Change            `json:"changes,omitempty"`
	Actions     []disruption.Action `json:"actions,omitempty"`
	Notes       []string            `json:"notes,omitempty"`
	StartedAt   time.Time           `json:"startedAt,omitzero"`
	FinishedAt  time.Time           `json:"finishedAt,omitzero"`
	// Steps are the steps of a run that has ended, in order, MaxSteps of them at most.
	Steps []StepTime `json:"steps,omitempty"`
}

// MaxSteps is how many steps a Status has at most. A run with more leaves out those that are done sooner than others.
const MaxSteps = 200

// StepTime is when a step of a run was done, by the node's clock.
type StepTime struct {
	Step string `json:"step"`
	// Class is the type of an action, such as Restart, or the operation of a change, such as Write; empty for what every run does.
	Class string `json:"class,omitempty"`
	// StartedAt is when it was begun first: a step that was interrupted is begun again.
	StartedAt time.Time `json:"startedAt"`
	// FinishedAt is when it was done, or had failed. It is zero if it was neither.
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	Failed     bool      `json:"failed,omitempty"`
}

// JournalEntry is one line of the journal that the agent keeps on the node. The journal is appended to, before and after
// each step, and is the witness of what was done, how often, and for whom.
type JournalEntry struct {
	Time   time.Time `json:"time"`
	Token  int64     `json:"token"`
	Digest string    `json:"digest"`
	// Event is "claimed", "adopted", "works-noted", "run-started", "step-started", "reboot-asked", "login-awaited", "step-done", "step-failed",
	// "rolled-back" or "run-done".
	Event string `json:"event"`
	Step  string `json:"step,omitempty"`
	// Boot tells one boot of the node from another. It is with the entries of the step that reboots the node: the boot in which
	// the step was begun, and the one in which it was found done. It is also with "login-awaited". It is opaque.
	Boot string `json:"boot,omitempty"`
	// Until is with "login-awaited" and "reboot-asked": how long the node has been up when the wait is over. That clock nobody sets.
	Until time.Duration `json:"until,omitempty"`
	Error string        `json:"error,omitempty"`
	// Note says what is remarkable about a step that is done, for example that a unit was not active and not reloaded.
	Note string `json:"note,omitempty"`
}

// Identity is what the agent says about itself.
type Identity struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	// SHA256 is the digest of the agent's own binary, in hex.
	SHA256   string `json:"sha256"`
	Hostname string `json:"hostname"`
}

// ErrorReason says what kind of error the agent met, so that the server knows how to go on.
type ErrorReason string

// The reasons.
const (
	// ReasonInvalid: the request can't be carried out as it is. Trying again does not help.
	ReasonInvalid ErrorReason = "Invalid"
	// ReasonStale: the node has seen a higher token. Somebody else does the work now: stop.
	ReasonStale ErrorReason = "Stale"
	// ReasonBusy: a run for another digest is under way. Wait for it.
	ReasonBusy ErrorReason = "Busy"
	// ReasonOtherMachine: the node has a record of another Machine. The address is likely wrong.
	ReasonOtherMachine ErrorReason = "OtherMachine"
	// ReasonBlocked: the plan has problems; the message lists them.
	ReasonBlocked ErrorReason = "Blocked"
	// ReasonChanged: the work takes more by now than what was permitted. Nothing was begun; ask for the plan again.
	ReasonChanged ErrorReason = "Changed"
	// ReasonNotAwaited: no run waits for the login that is confirmed, or not any more. Ask how the run stands.
	ReasonNotAwaited ErrorReason = "NotAwaited"
	// ReasonNoAgent: the gate does not have the agent, or not as it was brought. Bring it.
	ReasonNoAgent ErrorReason = "NoAgent"
	// ReasonRefused: the gate does not do what it was asked.
	ReasonRefused ErrorReason = "Refused"
	// ReasonInternal: something on the node did not work, a full disk for example. Trying again may help.
	ReasonInternal ErrorReason = "Internal"
)

// AgentError is an error that the agent reports, as against one of reaching it.
type AgentError struct {
	Reason  ErrorReason `json:"reason"`
	Message string      `json:"message"`
}

// Error implements error.
func (e *AgentError) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

// Answer is what the agent writes to its stdout: one member is set.
type Answer struct {
	Identity *Identity    `json:"identity,omitempty"`
	Plan     *Plan        `json:"plan,omitempty"`
	Status   *Status      `json:"status,omitempty"`
	Drift    *DriftReport `json:"drift,omitempty"`
	Stage    *StageStatus `json:"stage,omitempty"`
	Gate     *GateInfo    `json:"gate,omitempty"`
	Error    *AgentError  `json:"error,omitempty"`
}
