package hosttest

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/agent/host"
)

// Units is a service manager whose units do what they are told.
type Units struct {
	States map[string]host.UnitState
	// Calls are the verbs with their units.
	Calls []string
	// Fails is the verb that does not work.
	Fails string
	// Before and After, if set, are called before and after a call is done. Their error is its answer, and then the rest is not done.
	Before, After func(verb, unit string) error
}

// System implements host.Units.
func (*Units) System(context.Context) (string, error) { return "running", nil }

// Show implements host.Units.
func (u *Units) Show(_ context.Context, unit string) (host.UnitState, error) {
	if s, ok := u.States[unit]; ok {
		return s, nil
	}
	return host.UnitState{LoadState: "not-found", ActiveState: "inactive"}, nil
}

// Do implements host.Units.
func (u *Units) Do(_ context.Context, verb, unit string) error {
	u.Calls = append(u.Calls, verb+" "+unit)
	if u.Fails == verb {
		return errors.New("exit status 1")
	}
	if u.Before != nil {
		if err := u.Before(verb, unit); err != nil {
			return err
		}
	}
	u.States[unit] = Done(u.States[unit], verb)
	if u.After != nil {
		return u.After(verb, unit)
	}
	return nil
}

// Done returns the state of a unit after a verb of systemctl.
func Done(s host.UnitState, verb string) host.UnitState {
	switch verb {
	case "enable", "disable":
		s.UnitFileState = verb + "d"
	case "start":
		s.ActiveState = "active"
	case "stop":
		s.ActiveState = "inactive"
	case "mask":
		s.LoadState, s.UnitFileState = "masked", "masked"
	case "unmask":
		s.LoadState, s.UnitFileState = "loaded", "disabled"
	}
	return s
}
