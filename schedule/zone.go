package schedule

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // zones are known wherever the binary runs
)

// maxOffset is more than any zone was ever away from UTC.
const maxOffset = 26 * 3600

func loadZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return nil, errors.New("the name of a time zone is empty")
	case "Local":
		return nil, errors.New("the zone Local is whatever the server runs in; name a zone, such as Europe/Berlin")
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not an IANA time zone", name)
	}
	return loc, nil
}

// resolve returns the instant, in seconds of Unix, at which the clocks of a zone show a time of a day. In an overlap that is
// the first such instant. In a gap no clock ever shows it: the offset from before the gap counts, so that the instant is as
// long after the gap's begin as the local time says.
//
// time.Date promises neither.
func resolve(loc *time.Location, day Date, seconds int) int64 {
	local := int64(day)*secondsPerDay + int64(seconds)
	if loc == time.UTC {
		return local
	}
	// Walk the spans of constant offset, beginning with one that has surely not reached the local time yet.
	at := time.Unix(local-maxOffset, 0).In(loc)
	before := offset(at)
	for {
		here := offset(at)
		from, until := at.ZoneBounds()
		unix := local - int64(here)
		if !from.IsZero() && unix < from.Unix() {
			return local - int64(before)
		}
		if until.IsZero() || unix < until.Unix() {
			return unix
		}
		before, at = here, until
	}
}

func offset(t time.Time) int {
	_, seconds := t.Zone()
	return seconds
}
