package schedule

import (
	"fmt"
	"time"
)

// tell returns what was found, with the instant at which it changes.
func (i *inquiry) tell(d Decision) string {
	switch {
	case d.Reason == Overridden && d.Open:
		return "permissive until " + stamp(i.PermissiveUntil)
	case d.Reason == Overridden:
		return fmt.Sprintf("restrictive until %s; opens at %s", stamp(i.RestrictiveUntil), stamp(d.Window.Start))
	case d.Open:
		return i.tellOpen(d)
	}
	who := i.closed()
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

// explain returns why there is no window.
func (i *inquiry) explain(reason Reason, required time.Duration) string {
	days := i.horizon / secondsPerDay
	switch reason {
	case Paused:
		return i.closed() + " is restrictive"
	case NeverFits:
		return fmt.Sprintf("no window within %d days is as long as the update is expected to take, %s", days, required)
	default:
	}
	if who := i.closed(); who != "" {
		return fmt.Sprintf("%s: no window within %d days", who, days)
	}
	return fmt.Sprintf("no window within %d days", days)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
