package flow

// waiting decides on an update that can't go on now. The node is released meanwhile, unless it is being disturbed, or is to be left half
// done. A node that is only drained is not kept for long: others wait for its slot, and nobody else may mend it.
func waiting(s *State) Command {
	if s.Begun() && s.Admission != "" && !s.Preempted && !s.Stalled {
		if s.unfollowed() {
			return AskLogin
		}
		return Wait
	}
	return released(s, Wait)
}

// unfollowed reports whether work may be under way that nobody follows, since the update waits for something else before the node is asked.
func (s *State) unfollowed() bool {
	return s.Attempted && s.Last == "" && s.Work == "" && s.Machine == Present && s.Waits != Unreachable
}

// released has the node released before what comes then. What runs there ends first, for which the update waits, and so does the work of a
// registered updater, unless a person gives it up: nobody else can end it.
func released(s *State, then Command) Command {
	atWork := s.Updaters == AtWork // and so the node is not
	switch {
	case s.Released:
		return then
	case atWork && !s.Abandon && !s.Deleted:
		return Wait
	case s.Changed && s.Work == "" && !atWork:
		return AskWork
	case s.Work == UnderWay || s.Work == Unknown || s.Work == Unreleased:
		return Wait
	}
	return ReleaseNode
}

// failing decides on an update that can't go on. It has failed when its node is released: until then it shows why it is not.
func failing(s *State) Command {
	switch {
	case s.Released:
		return Fail
	case s.Work == Unreleased:
		return Wait
	}
	return ReleaseNode
}

// abandoned decides on an update that a person abandons. One that has failed was told of; another try may have left work under way.
func abandoned(s *State) Command {
	switch {
	case s.Failed && s.Work == Unreleased:
		return AbandonLater
	case s.Failed && !s.Released:
		return ReleaseNode
	}
	return released(s, Abandon)
}

// leaving decides on an update whose Machine goes. What runs on the node ends first, but does not keep the Machine for long; and a node
// that does not answer does not keep it at all.
func leaving(s *State) Command {
	switch {
	case s.Released:
		return Wait
	case s.Changed && !s.Late && s.Work == "":
		return AskWork
	case s.Work == UnderWay:
		return Wait
	}
	return ReleaseMachine
}

// finalized decides on an update whose MachineUpdate is being deleted. Nothing of refit's outlives it, as long as somebody can be asked.
func finalized(s *State) Command { //nolint:cyclop // a table: one way to end after the other
	switch {
	case !s.Kept:
		return Stop
	case s.Clean:
		return RemoveFinalizer
	case s.Machine == "":
		return FindOwners
	case s.Machine == Unasked || s.Released:
		return RemoveFinalizer
	case s.Machine == HeldBack && s.Changed && s.Work == "":
		return AskLogin
	case s.Machine == HeldBack || s.Work == Unreleased:
		return Stay
	case s.Machine == Gone:
		return ReleaseNode
	}
	next := leaving
	if s.Machine == Present { // somebody has deleted the MachineUpdate only
		next = func(s *State) Command { return released(s, RemoveFinalizer) }
	}
	if c := next(s); c != Wait {
		return c
	}
	return Stay
}
