package flow

import refitv1 "github.com/capi-refit/refit/api/v1alpha1"

// Command is what is to be done next. A command ends the reconciliation, or has State say more than before.
type Command string

const (
	// FindOwners reads the Machine and the Cluster of an update that is being deleted.
	FindOwners Command = "FindOwners"
	// Stay keeps an update that is being deleted, and shows why. It ends.
	Stay Command = "Stay"
	// RemoveFinalizer takes the finalizer off. It ends.
	RemoveFinalizer Command = "RemoveFinalizer"
	// AskWork asks whether work is under way on a node that is to be released.
	AskWork Command = "AskWork"
	// AskLogin asks the node of an update that waits for something else whether its work waits for a login.
	AskLogin Command = "AskLogin"
	// FindMachine reads the Machine and its Cluster.
	FindMachine Command = "FindMachine"
	// AddFinalizer puts the finalizer on.
	AddFinalizer Command = "AddFinalizer"
	// Abandon frees what a failed update keeps. It ends.
	Abandon Command = "Abandon"
	// AbandonLater shows why an update that has failed can't be abandoned yet. It ends.
	AbandonLater Command = "AbandonLater"
	// RollBack writes what the owner wants into the Machine's objects.
	RollBack Command = "RollBack"
	// Withdraw ends an update that nobody asks for any more. It ends.
	Withdraw Command = "Withdraw"
	// Begin makes the status that of an update which begins.
	Begin Command = "Begin"
	// ReleaseMachine releases a Machine that goes, and its node.
	ReleaseMachine Command = "ReleaseMachine"
	// Stop does nothing more: there is nothing to do. It ends.
	Stop Command = "Stop"
	// LookAgain waits without showing anything: the update has failed, and that is what it shows. It ends.
	LookAgain Command = "LookAgain"
	// Wait shows what the update waits for. It ends.
	Wait Command = "Wait"
	// AwaitBoot waits for a node that reboots. It ends.
	AwaitBoot Command = "AwaitBoot"
	// Fail ends the update, whose node is released. It ends.
	Fail Command = "Fail"
	// CheckRepair looks whether a repair is still wanted.
	CheckRepair Command = "CheckRepair"
	// WithdrawRepair ends a repair that nobody wants any more. It ends.
	WithdrawRepair Command = "WithdrawRepair"
	// ReadSpecs reads what the node is to be, and by which rules.
	ReadSpecs Command = "ReadSpecs"
	// AskPolicies asks whether the update may start.
	AskPolicies Command = "AskPolicies"
	// FindAccess looks how to log in to the node.
	FindAccess Command = "FindAccess"
	// ReachWorkload reaches the workload cluster.
	ReachWorkload Command = "ReachWorkload"
	// TakeSlot takes one of the cluster's slots.
	TakeSlot Command = "TakeSlot"
	// Lock acquires the node's lease.
	Lock Command = "Lock"
	// AwaitWorkload has the update wait for the workload cluster's API server.
	AwaitWorkload Command = "AwaitWorkload"
	// Connect logs in to the node.
	Connect Command = "Connect"
	// Look has the node compare itself with what is desired.
	Look Command = "Look"
	// NoteWorks has the node note what of it works, before a registered updater changes the machine.
	NoteWorks Command = "NoteWorks"
	// CallUpdater calls the registered updater whose turn it is, or finds out why it can't be.
	CallUpdater Command = "CallUpdater"
	// AwaitNode has the update wait for the end of the node's work for other specs.
	AwaitNode Command = "AwaitNode"
	// AskNode asks the node how its last work stands.
	AskNode Command = "AskNode"
	// RefuseDrift has the update wait until a node is put back as it was applied.
	RefuseDrift Command = "RefuseDrift"
	// Stage has the node fetch what it needs. It ends.
	Stage Command = "Stage"
	// StageNext comes back at once, to stage what a policy had held back. It ends.
	StageNext Command = "StageNext"
	// Note records what the node says that the update takes.
	Note Command = "Note"
	// GoOn records that work goes on that was admitted before.
	GoOn Command = "GoOn"
	// AdmitQuiet records that work starts which does not disturb the node.
	AdmitQuiet Command = "AdmitQuiet"
	// Admit asks policies and slots once more, and records that work starts.
	Admit Command = "Admit"
	// Check asks lease and holds whether the next step may start.
	Check Command = "Check"
	// Spare asks whether the cluster can do without the node.
	Spare Command = "Spare"
	// Protect keeps others off Machine and Node.
	Protect Command = "Protect"
	// Drain does one round of the drain.
	Drain Command = "Drain"
	// Work has the node do its work, or go on with it, and follows it to its end.
	Work Command = "Work"
	// TakeFailure acts on work that has failed on the node: it is why the update can't go on, or something else is to be done there.
	TakeFailure Command = "TakeFailure"
	// Verify has the node compare itself with what is desired once more.
	Verify Command = "Verify"
	// BringNode brings labels and taints to the Node.
	BringNode Command = "BringNode"
	// AwaitReady looks whether the Node is Ready.
	AwaitReady Command = "AwaitReady"
	// ReleaseNode releases the node.
	ReleaseNode Command = "ReleaseNode"
	// Succeed says that the update has been made. It ends.
	Succeed Command = "Succeed"
)

// Reason is why an update waits or fails: one of those of a MachineUpdate's status.
type Reason string

// Decide returns what is to be done next, and why if that is to wait or to fail.
func Decide(s State) (Command, Reason) {
	c := decide(s)
	switch {
	case c == Fail && s.Broken == "":
		return c, NodeNotBack
	case c == Fail:
		return c, Reason(s.Broken)
	case c == Wait && s.Broken != "":
		return c, refitv1.ReasonWorkload
	case c == Wait && s.Waits == "" && s.Window != Open:
		return c, refitv1.ReasonWindow
	case c == Wait:
		return c, Reason(s.Waits)
	}
	return c, ""
}

func decide(s State) Command {
	for _, part := range []func(*State) Command{asked, blocked, prepared, occupied, called, looked, admitted, worked, proven} {
		if c := part(&s); c != "" {
			return c
		}
	}
	return Succeed
}

// asked decides on what people and Cluster API ask for. Nothing of it needs the node, but to release it.
func asked(s *State) Command { //nolint:cyclop // a table: who asks first is heard first
	there := s.Machine == Present
	switch {
	case s.Deleted:
		return finalized(s)
	case s.Finished && s.Kept && s.Clean:
		return RemoveFinalizer
	case s.Finished:
		return Stop
	case s.Machine == "":
		return FindMachine
	case there && !s.Kept:
		return AddFinalizer
	case s.Abandon && s.Machine != Leaving && s.Machine != Replaced: // with its Machine it goes as a whole
		return abandoned(s)
	case there && s.Rollback && !s.RolledBack && s.Waits == "":
		return RollBack
	case there && s.Rollback && !s.RolledBack && s.Failed:
		return LookAgain
	case there && s.Rollback && !s.RolledBack: // nobody else gets the node before it is released
		return released(s, Wait)
	case there && !s.Asked:
		return released(s, Withdraw)
	case s.New:
		return Begin
	case s.Machine == Leaving:
		return leaving(s)
	case s.Machine == Gone:
		return Stop
	case s.Machine == HeldBack && s.Failed:
		return LookAgain
	case s.Machine == HeldBack || s.Machine == Replaced:
		return waiting(s)
	}
	return ""
}

// blocked decides on what stands in the way, wherever it was found.
func blocked(s *State) Command {
	switch {
	case s.Broken != "":
		return failing(s)
	case s.Waits == Unreachable && s.Reboots && s.Overdue:
		return failing(s)
	case s.Waits == Unreachable && s.Reboots:
		return AwaitBoot
	case s.Lost: // who would mend it or make it again is kept off as long as the update goes on
		return failing(s)
	case s.Waits != "":
		return waiting(s)
	}
	return ""
}

// prepared gathers what is known without the node. What a policy holds back waits here if nothing that the node could say matters.
func prepared(s *State) Command {
	switch {
	case s.Repair && s.Unwanted:
		return released(s, WithdrawRepair)
	case s.Repair && !s.Wanted:
		return CheckRepair
	case !s.Specs:
		return ReadSpecs
	case s.Window == "":
		return AskPolicies
	case s.heldBack():
		return waiting(s)
	case !s.Access && s.Updaters != AtWork:
		return FindAccess
	}
	return ""
}

// heldBack reports whether a policy holds the update back whatever the node would say: all of it, or what it is known to do.
func (s *State) heldBack() bool {
	return s.Window != Open && !s.Begun() && (s.Window == ClosedToAll || s.Planned == Disturbing && s.Current)
}

// occupied makes the node refit's. What a policy holds back takes no slot from others.
func occupied(s *State) Command {
	switch {
	case s.Workload == "":
		return ReachWorkload
	case s.Workload == Away || s.Leased:
		return ""
	case s.Window == Open && s.Planned == Disturbing && !s.Slot:
		return TakeSlot
	}
	return Lock
}

// called has a registered updater go on that is at work. It does not ask the node, which may be down by that. What was begun goes on without a
// lease, too, where the workload cluster's API server is away: that may be the reason.
func called(s *State) Command {
	switch {
	case s.Updaters != AtWork:
		return ""
	case s.Leased && !s.Allowed:
		return Check
	}
	return CallUpdater
}

// looked asks the node. Without its lease that is only about work which is under way.
func looked(s *State) Command { //nolint:cyclop // a table: one question after the other
	switch {
	case !s.Connected:
		return Connect
	case s.Last == "": // first, since a run from before may wait for a login
		return AskNode
	case !s.Leased:
		return withoutLease(s)
	case s.Busy && s.Due: // what runs there ends before others change the machine
		return AwaitNode
	case !s.Plan.Known:
		return Look
	case s.Plan.Refused && s.Last == Idle && !s.Draining:
		return RefuseDrift
	case s.Plan.Stages && s.Plan.Source && s.Last != Running && (s.Window == Open || s.Plan.Early):
		return Stage
	}
	return ""
}

// withoutLease takes what is under way on the node to its end: it may be what keeps the workload cluster's API server away. Nothing
// begins.
func withoutLease(s *State) Command {
	if s.Last == RunFailed || s.Last.UnderWay() {
		return ""
	}
	return AwaitWorkload
}

// admitted asks policies for the last time. Beyond the point of no return nothing holds the work back.
func admitted(s *State) Command { //nolint:cyclop // a table: one question after the other
	switch {
	case !s.Leased:
		return ""
	case s.Admitted && s.Plan.Stages && s.Last != Running: // the window has opened just now
		return StageNext
	case s.Admitted:
		return ""
	case s.goesOn() && (s.Last != RunFailed && s.Last != FailedBefore || s.Noted):
		return GoOn
	case !s.Noted: // what failed goes on with something else: a reboot, say
		return Note
	case s.Plan.Effect == Quiet && s.Window != ClosedToAll:
		return AdmitQuiet
	}
	return Admit
}

// goesOn reports whether work goes on that was admitted. The record of an admission does not prove that work has started: the node may
// not have been reached after it. And who was admitted for what does not disturb the node is not admitted for more; what runs on
// the node ends in any case.
func (s *State) goesOn() bool {
	begun := s.Last != Idle || s.Draining || s.Updaters == Done
	more := s.Admission == Quiet && s.Plan.Effect == Disturbing && s.Last != Running
	return begun && s.Admission != "" && !more
}

// worked has the node do its work, after others are kept off and its pods have left.
func worked(s *State) Command { //nolint:cyclop // a table: one question after the other
	begun := s.InProgress()
	switch {
	case s.Last == RunFailed || s.Ran == RunFailed:
		return TakeFailure
	case s.Ran != "" || !s.Leased && begun:
		return work(s)
	case !s.Allowed:
		return Check
	case !s.Marked:
		return next(s)
	case !begun && !s.Spared:
		return Spare
	case !s.Protected:
		return Protect
	case !begun && s.Plan.Drains && !s.Drained:
		return Drain
	}
	return next(s)
}

// next has the node do its part when the registered updaters have done theirs. They begin nothing while it is at work, nor before it is known what
// of the node works: what one of them breaks would be taken for broken before.
func next(s *State) Command {
	switch {
	case !s.Due || s.Last == Running:
		return work(s)
	case !s.Works:
		return NoteWorks
	}
	return CallUpdater
}

func work(s *State) Command {
	if s.Ran == "" {
		return Work
	}
	return ""
}

// proven demands a proof for each part before the update has succeeded.
func proven(s *State) Command {
	switch {
	case !s.Verified:
		return Verify
	case !s.Brought:
		return BringNode
	case !s.Ready:
		return AwaitReady
	case !s.Released:
		return ReleaseNode
	}
	return ""
}
