package schedule

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{
		"FREQ=MONTHLY;BYDAY=1SA", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;WKST=SU;COUNT=9",
		"FREQ=DAILY;UNTIL=20261226T200000Z", "FREQ=YEARLY;BYDAY=-53MO,+1TU;BYSETPOS=-1,366", "FREQ=;;=",
	} {
		f.Add(s, 20000)
	}
	f.Fuzz(func(t *testing.T, s string, day int) {
		parsed, err := ParseRule(s)
		if err != nil {
			return
		}
		rule := parsed.Anchored(Date(floorMod(day, 50000)))
		from := Date(floorMod(day, 60000))
		next, ok := rule.Next(from, from+4000)
		if !ok {
			return
		}
		if next < from || next > from+4000 {
			t.Fatalf("%s: %s is not within 4000 days after %s", s, next, from)
		}
		if back, ok := rule.Previous(next, from); !ok || back != next {
			t.Fatalf("%s: before %s comes %s", s, next, back)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"8h", "90m", "0s", "-1h", "1.5s", "P1DT2H", "P2W", "PT", "+P0D", "PT36H"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil && (d <= 0 || d%time.Second != 0) {
			t.Fatalf("%q is %s", s, d)
		}
		if l, err := parseISODuration(s); err == nil && (l.days < 0 || l.seconds < 0) {
			t.Fatalf("%q is %v", s, l)
		}
	})
}

func FuzzParseCalendar(f *testing.F) {
	f.Add(calendarOf("DTSTART;VALUE=DATE:20201225", "RRULE:FREQ=YEARLY", "EXDATE;VALUE=DATE:20271225"))
	f.Add(calendarOf("DTSTART;TZID=America/New", " _York:20261225T100000", "DURATION:PT90M"))
	f.Add(calendarOf("DTSTART:20261225T100000Z", "DTEND:20261225T120000Z", "RDATE:20261227T100000Z"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s, err := parseCalendar(data, time.UTC)
		if err != nil {
			return
		}
		now := time.Date(2026, 12, 25, 0, 0, 0, 0, time.UTC).Unix()
		firstIn(s, now, now+30*secondsPerDay)
		s.before(now, now-30*secondsPerDay)
	})
}

// FuzzPolicy reads whole policies: those that can't be read are closed, and what the others say agrees with their windows.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte("strategy: Permissive"), int64(0))
	f.Add([]byte("strategy: MaintenanceSchedule\nmaintenanceSchedule: {permit: [{recurrence: FREQ=DAILY;COUNT=3, startDate: 2026-01-03, startTime: \"02:30\", duration: 90m}]}"), int64(1e9))
	f.Add([]byte("strategy: MaintenanceSchedule\nmaintenanceSchedule: {timeZone: Europe/Berlin, exclude: [{from: 2026-12-20, until: 2027-01-04}]}"), int64(1798000000))
	f.Fuzz(func(t *testing.T, data []byte, unix int64) {
		now := time.Unix(unix%(1<<33), 0)
		var p Policy
		if err := yaml.UnmarshalStrict(data, &p); err != nil {
			return
		}
		s, err := Compile("p", p, NoCalendars)
		d := Decide(Query{Now: now, ExpectedDuration: time.Second}, s)
		if err != nil {
			if d.Open || d.Reason != InvalidPolicy || s.Err(now) == nil {
				t.Fatalf("it can't be read, and is %+v", d)
			}
			return
		}
		for w := range Windows(now, now.Add(DefaultHorizon), s) {
			if d.Open == w.Start.After(now) {
				t.Fatalf("%+v, but the first window is %v", d, w)
			}
			return
		}
		if d.Open {
			t.Fatalf("%+v, but there is no window", d)
		}
	})
}
