package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tell returns what was found, with the instant at which it changes.
func (i *inquiry) tell(d Decision) string {
	switch {
	case d.Reason == Overridden && d.Open:
		return "permissive until " + stamp(i.PermissiveUntil)
	case d.Reason == Overridden:
		return i.stopped("opens at " + stamp(d.Window.Start))
	case d.Reason == NotBefore:
		return i.wantedLater("opens at " + stamp(d.Window.Start))
	case d.Open:
		return i.tellOpen(d)
	}
	who := named(i.shut(), i.toldOf)
	if who == "" {
		return fmt.Sprintf("what is left of the window is shorter than %s, which the update is expected to take; opens at %s",
			i.required(), stamp(d.Window.Start))
	}
	return who + ": " + string(d.Reason) + "; opens at " + stamp(d.Window.Start)
}

// tellOpen returns how long it is open.
func (i *inquiry) tellOpen(d Decision) string {
	switch {
	case len(i.schedules) == 0:
		return "no policy selects the machine"
	case !d.Fits:
		return fmt.Sprintf("open until %s, but the update is expected to take %s", stamp(d.Window.End), i.wanted())
	case d.Window == nil || d.Window.End.IsZero():
		return "open"
	default:
		return "open until " + stamp(d.Window.End)
	}
}

// those returns the policies that are of a kind.
func (i *inquiry) those(are func(*Schedule) bool) []*Schedule {
	return slices.DeleteFunc(slices.Clone(i.schedules), func(s *Schedule) bool { return !are(s) })
}

// stopped returns that a restrictive override is in force, and what comes after it; nothing does if that is beyond the horizon.
func (i *inquiry) stopped(after string) string {
	if i.RestrictiveUntil.Unix() > i.unix+i.horizon {
		return "restrictive, and no end is near"
	}
	return "restrictive until " + stamp(i.RestrictiveUntil) + "; " + after
}

// wantedLater returns that the change is not wanted yet, and what comes after that; nothing does if that is beyond the horizon.
func (i *inquiry) wantedLater(after string) string {
	if i.NotBefore.Unix() > i.unix+i.horizon {
		return "not wanted before an instant that is not near"
	}
	return "not wanted before " + stamp(i.NotBefore) + "; " + after
}

// closing returns the policies by which there is no window: those that have none by themselves, or all.
func (i *inquiry) closing(reason Reason) []*Schedule {
	switch reason {
	case Paused:
		return i.those(restrictive)
	case Manual:
		return i.those((*Schedule).Manual)
	case NeverFits:
		return nil
	default:
	}
	if alone := i.without(); len(alone) > 0 {
		return alone
	}
	return i.schedules
}

// explain returns why there is no window, by the policies that are closing.
func (i *inquiry) explain(reason Reason, required time.Duration, by []*Schedule) string {
	within := fmt.Sprintf("within %d days", i.horizon/secondsPerDay)
	switch reason {
	case Paused:
		return named(by, nil) + " is restrictive"
	case Manual:
		return named(by, nil) + " is manual, and nobody has permitted this change"
	case NeverFits:
		return fmt.Sprintf("no window %s is as long as the update is expected to take, %s", within, required)
	default:
	}
	if i.alone(by) {
		return strings.TrimPrefix(fmt.Sprintf("%s: no window %s", named(by, (*Schedule).others), within), ": ")
	}
	return fmt.Sprintf("%s: each has windows, but there is none %s in which all are open; have them overlap", named(by, nil), within)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
