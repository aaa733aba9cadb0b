// Package flow decides how an update goes on. It is pure: it has no client, no context and no clock, and it reads no message. Whoever
// runs an update gathers facts into a State, asks Decide, does what it is told, and asks again.
//
// A State says of each fact whether it is known. Decide asks for one fact after the other, the cheap ones first, and for none that
// can't matter. After a crash nothing has to be resumed: the State is gathered again, from the MachineUpdate, from the workload
// cluster and from the node, and the update goes on where it was.
package flow

import refitv1 "github.com/capi-refit/refit/api/v1alpha1"

// State is all that a decision needs.
type State struct {
	Record
	Seen
}

// Record is what the MachineUpdate says.
type Record struct {
	// Deleted reports whether its deletion is asked for.
	Deleted bool
	// Finished reports whether there is nothing to do until other specs or another try are asked for.
	Finished bool
	// New reports whether other specs or another try are asked for than those that the status is about.
	New bool
	// Kept reports whether the finalizer is on.
	Kept bool
	// Failed reports whether the update has failed, and is only to be abandoned or rolled back.
	Failed bool
	// Changed reports whether the node may have been changed, and Clean whether nothing of refit's is on Machine, Node and node.
	Changed, Clean bool
	// Abandon and Rollback report whether a person has asked for that.
	Abandon, Rollback bool
	// Repair reports whether the update brings a node back to what was applied.
	Repair bool
	// Attempted reports whether the node was asked to begin, Draining whether a drain has begun, and Drained whether it has ended.
	Attempted, Draining, Drained bool
	// Planned is what the node said that the update takes, when it was last asked.
	Planned Effect
	// Admission is what the update was admitted for.
	Admission Effect
	// Marked reports whether others are to be kept off the Node.
	Marked bool
	// Updaters is how far the registered updaters are that were called in this update.
	Updaters Updaters
	// Stalled reports whether the update has waited for long with a node that it was to drain, and has not changed.
	Stalled bool
	// Lost reports whether a node that may be half changed has for too long not answered, or not been as it must be for the work to go on.
	Lost bool
	// Reboots reports whether the node may be away because it reboots, and Overdue whether it is so for too long.
	Reboots, Overdue bool
}

// Begun reports whether the update is past the point where a policy can hold it back. Registered updaters that are done have begun it only by
// the admission that they were called with: other specs take that away.
func (r *Record) Begun() bool {
	return r.Attempted || r.Draining || r.Updaters == AtWork || r.Updaters == Done && r.Admission != ""
}

// Seen is what was seen in this reconciliation. Its zero value is that nothing was.
type Seen struct {
	Machine Machine
	// Asked reports whether Cluster API, or for a repair a policy, asks for the update.
	Asked bool
	// RolledBack reports whether the rollback that was asked for has ended, or waits for the end of what runs on the node.
	RolledBack bool
	// Wanted reports whether a repair is still to be made, and Unwanted whether it is not.
	Wanted, Unwanted bool
	// Specs reports whether the desired specs are known, and are those that were asked for. Due reports whether a registered updater is to be
	// called for them.
	Specs, Due bool
	// Window is what policies say.
	Window Window
	// Current reports whether the recorded plan was made by the rules that hold now.
	Current bool
	// Access reports whether it is known how to log in to the node.
	Access bool
	// Workload is the workload cluster's API server, and Slot reports whether the update has one or needs none for now.
	Workload Workload
	Slot     bool
	// Leased reports whether the node's lease is held.
	Leased bool
	// Connected reports whether there is a connection to the node.
	Connected bool
	// Plan is what the node says that is to be done.
	Plan Plan
	// Last is how the last work on the node for these specs stands, and Busy reports whether work for others is under way there.
	Last Run
	Busy bool
	// Works reports whether the node has noted what of it works, for the registered updater whose turn it is.
	Works bool
	// Noted reports whether the plan is recorded.
	Noted bool
	// Admitted reports whether it is recorded that the work starts.
	Admitted bool
	// Allowed reports whether lease and holds permit the next step, Spared whether the cluster can do without the node, and Protected
	// whether others are kept off.
	Allowed, Spared, Protected bool
	// Ran is how the work has ended that was followed.
	Ran Run
	// Verified reports whether the node shows what is desired, Brought whether the Node does, and Ready whether the Node is Ready.
	Verified, Brought, Ready bool
	// Work is what is known of the work on a node that is to be released, and Released reports whether it was.
	Work     NodeWork
	Released bool
	// Late reports whether the Machine has been leaving for so long that it does not wait for the work on its node any more.
	Late bool
	// Waits is the reason for which the update can't go on now, and Preempted reports whether that takes the node from it, whatever it has
	// begun there.
	Waits     string
	Preempted bool
	// Broken is the reason for which it can't go on at all.
	Broken string
}

// Machine is what has become of a Machine.
type Machine string

const (
	// Present Machines may be worked on.
	Present Machine = "Present"
	// HeldBack Machines are there, and are not to be touched: one that is paused, or that Cluster API is about to take.
	HeldBack Machine = "HeldBack"
	// Leaving Machines are being deleted.
	Leaving Machine = "Leaving"
	// Replaced Machines are gone, and another one has the name.
	Replaced Machine = "Replaced"
	// Gone Machines are not there.
	Gone Machine = "Gone"
	// Unasked Machines are not there either, and nobody can be asked about their nodes, or the node is another refit's.
	Unasked Machine = "Unasked"
)

// NodeWork is what is known of the work on a node that is to be released.
type NodeWork string

const (
	// Ended work, or none.
	Ended NodeWork = "Ended"
	// UnderWay work can't be left half done.
	UnderWay NodeWork = "UnderWay"
	// Unknown is the state of work on a node that does not answer.
	Unknown NodeWork = "Unknown"
	// Unreleased nodes could not be released.
	Unreleased NodeWork = "Unreleased"
)

// Updaters is how far the registered updaters are that were called in an update. The zero value is that none was.
type Updaters string

const (
	// AtWork is one that has not said that it is done. What it does to the machine only it knows: it may have taken the node down.
	AtWork Updaters = "AtWork"
	// Done is that all that were called have said so.
	Done Updaters = "Done"
)

// Effect is what work does to a node.
type Effect string

const (
	// Quiet work does not disturb the node.
	Quiet Effect = "Quiet"
	// Disturbing work may disturb what runs on the node.
	Disturbing Effect = "Disturbing"
)

// Window is what policies say of a start.
type Window string

const (
	// Open lets everything start.
	Open Window = "Open"
	// Closed holds back what disturbs the node.
	Closed Window = "Closed"
	// ClosedToAll holds back everything.
	ClosedToAll Window = "ClosedToAll"
)

// Workload is the state of a workload cluster's API server.
type Workload string

const (
	// Reached answers.
	Reached Workload = "Reached"
	// Away does not, while work is under way on the node: that may be why.
	Away Workload = "Away"
)

// Plan is what a node says that is to be done.
type Plan struct {
	Known  bool
	Effect Effect
	// Drains reports whether pods are to leave the node first.
	Drains bool
	// Stages reports whether something is to be brought to the node's disk first. Staged now, if Source, and while a policy holds the
	// update back only if Early.
	Stages, Source, Early bool
	// Refused reports whether the node has drifted where a policy refuses that.
	Refused bool
}

// Run is how work on a node stands.
type Run string

const (
	// Idle is no work for these specs.
	Idle Run = "Idle"
	// Running work is under way.
	Running Run = "Running"
	// Succeeded work has been done.
	Succeeded Run = "Succeeded"
	// RunFailed is work that has failed, of which nothing was recorded yet.
	RunFailed Run = "Failed"
	// FailedBefore is work that has failed, which was acted upon.
	FailedBefore Run = "FailedBefore"
)

// UnderWay reports whether work has begun and not failed.
func (r Run) UnderWay() bool { return r == Running || r == Succeeded }

// InProgress reports whether the work has begun, and would go on. Work that has been done begins again where somebody has undone it by hand
// before it was verified, and what disturbs the node then asks all that it asked the first time.
func (s *Seen) InProgress() bool {
	return s.Last == Running || s.Last == Succeeded && s.Plan.Effect != Disturbing
}

// Begins reports whether work would begin: none runs on the node, and none has ended there that is still to be acted upon.
func (r Run) Begins() bool { return r == Idle || r == FailedBefore }

// Unreachable is the reason to wait of a node that does not answer.
const Unreachable = refitv1.ReasonUnreachable

// NodeNotBack is the reason to fail of an update whose node has not come back in time: from a reboot, or to an update that is under way.
const NodeNotBack = "NodeNotBack"
