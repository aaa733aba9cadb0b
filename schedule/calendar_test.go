package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func calendarOf(lines ...string) []byte {
	all := append([]string{"BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", "UID:1"}, lines...)
	return []byte(strings.Join(append(all, "END:VEVENT", "END:VCALENDAR", ""), "\r\n"))
}

func TestWhatEventsCover(t *testing.T) {
	berlin, err := loadZone("Europe/Berlin")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		event   []string
		in, out []string
	}{
		"a day, of the policy's zone": {
			[]string{"DTSTART;VALUE=DATE:20261225"},
			[]string{"2026-12-24T23:00:00Z", "2026-12-25T22:59:59Z"}, []string{"2026-12-24T22:59:59Z", "2026-12-25T23:00:00Z"},
		},
		"days, of which the last is not one": {
			[]string{"DTSTART;VALUE=DATE:20261225", "DTEND;VALUE=DATE:20261227"},
			[]string{"2026-12-26T22:59:59Z"}, []string{"2026-12-26T23:00:00Z"},
		},
		"a time in UTC": {
			[]string{"DTSTART:20261225T100000Z", "DTEND:20261225T120000Z"},
			[]string{"2026-12-25T10:00:00Z"}, []string{"2026-12-25T09:59:59Z", "2026-12-25T12:00:00Z"},
		},
		"a time of another zone, and a duration": {
			[]string{"DTSTART;TZID=America/New_York:20261225T100000", "DURATION:PT90M"},
			[]string{"2026-12-25T15:00:00Z", "2026-12-25T16:29:59Z"}, []string{"2026-12-25T16:30:00Z"},
		},
		"a line that is folded": {
			[]string{"DTSTART;TZID=America/New", " _York:2026122", " 5T100000", "DURATION:PT90M"},
			[]string{"2026-12-25T15:00:00Z"}, []string{"2026-12-25T14:59:59Z"},
		},
		"every year, but one": {
			[]string{"DTSTART;VALUE=DATE:20201225", "RRULE:FREQ=YEARLY", "EXDATE;VALUE=DATE:20271225"},
			[]string{"2020-12-25T12:00:00Z", "2026-12-25T12:00:00Z", "2028-12-25T12:00:00Z"}, []string{"2027-12-25T12:00:00Z"},
		},
		"a rule over the change of the clocks": {
			[]string{"DTSTART;TZID=Europe/Berlin:20260301T020000", "DURATION:PT1H", "RRULE:FREQ=DAILY", "EXDATE;TZID=Europe/Berlin:20260302T020000"},
			[]string{"2026-03-01T01:00:00Z", "2026-03-30T00:00:00Z"}, []string{"2026-03-02T01:00:00Z", "2026-03-30T01:00:00Z"},
		},
		"an exception at another time takes nothing away": {
			[]string{"DTSTART:20260301T020000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", "EXDATE:20260302T030000Z"},
			[]string{"2026-03-02T02:00:00Z"}, nil,
		},
		"further days": {
			[]string{"DTSTART;VALUE=DATE:20261225", "RDATE;VALUE=DATE:20261227,20261229"},
			[]string{"2026-12-27T12:00:00Z", "2026-12-29T12:00:00Z"}, []string{"2026-12-26T12:00:00Z"},
		},
		"one that was cancelled": {
			[]string{"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=DAILY", "END:VEVENT", "BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20261226", "RECURRENCE-ID;VALUE=DATE:20261226", "STATUS:CANCELLED"},
			[]string{"2026-12-25T12:00:00Z", "2026-12-27T12:00:00Z"}, []string{"2026-12-26T12:00:00Z"},
		},
		"one that was cancelled, of another event": {
			[]string{"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=DAILY", "END:VEVENT", "BEGIN:VEVENT", "UID:2", "DTSTART;VALUE=DATE:20261226", "RECURRENCE-ID;VALUE=DATE:20261226", "STATUS:CANCELLED"},
			[]string{"2026-12-26T12:00:00Z"}, nil,
		},
		"one and all after it that were cancelled are kept": {
			[]string{"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=DAILY", "END:VEVENT", "BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20261226", "RECURRENCE-ID;RANGE=THISANDFUTURE;VALUE=DATE:20261226", "STATUS:CANCELLED"},
			[]string{"2026-12-26T12:00:00Z", "2026-12-27T12:00:00Z"}, nil,
		},
		"one that was moved is kept in both places": {
			[]string{"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=WEEKLY", "END:VEVENT", "BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20270102", "RECURRENCE-ID;VALUE=DATE:20270101"},
			[]string{"2027-01-01T12:00:00Z", "2027-01-02T12:00:00Z"}, []string{"2027-01-03T12:00:00Z"},
		},
		"Outlook's names of zones": {
			[]string{"DTSTART;TZID=W. Europe Standard Time:20260701T100000", "DURATION:PT1H"},
			[]string{"2026-07-01T08:00:00Z"}, []string{"2026-07-01T09:00:00Z"},
		},
		"what was cancelled": {
			[]string{"DTSTART;VALUE=DATE:20261225", "STATUS:CANCELLED"}, nil, []string{"2026-12-25T12:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseCalendar(calendarOf(c.event...), berlin)
			require.NoError(t, err)
			for _, at := range c.in {
				in, _ := s.at(instant(t, at).Unix(), 0)
				require.True(t, in, at)
			}
			for _, at := range c.out {
				in, _ := s.at(instant(t, at).Unix(), 0)
				require.False(t, in, at)
			}
		})
	}
}

func TestCalendarsThatCannotBeRead(t *testing.T) {
	whole := string(calendarOf("DTSTART;VALUE=DATE:20261225"))
	for name, c := range map[string]struct{ data, says string }{
		"nothing":                  {"", "not an iCalendar file"},
		"a page of HTML":           {"<html>", "not an iCalendar file"},
		"half a calendar":          {whole[:len(whole)-20], "not a whole one"},
		"no start":                 {string(calendarOf("SUMMARY:x")), "DTSTART"},
		"a zone that is not known": {string(calendarOf("DTSTART;TZID=Mars:20261225T100000")), "TZID"},
		"every hour":               {string(calendarOf("DTSTART:20261225T100000Z", "RRULE:FREQ=HOURLY")), "FREQ=HOURLY"},
		"an end before the start":  {string(calendarOf("DTSTART:20261225T100000Z", "DTEND:20261225T090000Z")), "DTEND"},
		"a period":                 {string(calendarOf("DTSTART:20261225T100000Z", "RDATE;VALUE=PERIOD:20261225T100000Z/PT1H")), "RDATE"},
		"a day that is none":       {string(calendarOf("DTSTART;VALUE=DATE:20260230")), "DTSTART"},
		"a duration of words":      {string(calendarOf("DTSTART:20261225T100000Z", "DURATION:P1X")), "DURATION"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseCalendar([]byte(c.data), time.UTC)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestACalendarThatIsStaleCloses(t *testing.T) {
	p := saturdays()
	p.MaintenanceSchedule.Exclude = []Exclude{{Calendar: &CalendarReference{ConfigMap: ConfigMapKey{"holidays", "x.ics"}, MaxAge: "24h"}}}
	read := instant(t, "2026-10-02T22:00:00Z")
	s, err := Compile("weekends", p, CalendarsFunc(func(ConfigMapKey) (Calendar, error) {
		return Calendar{Data: calendarOf("DTSTART;VALUE=DATE:20261225"), Modified: read}, nil
	}))
	require.NoError(t, err)
	require.True(t, Decide(Query{Now: read.Add(24 * time.Hour)}, s).Open)
	d := Decide(Query{Now: read.Add(24*time.Hour + time.Second)}, s)
	require.Equal(t, InvalidPolicy, d.Reason)
	require.Contains(t, d.Message, "maintenanceSchedule.exclude[0].calendar.maxAge")
}

// TestZonesOfWindowsAreThere demands that each stands for a zone that is known.
func TestZonesOfWindowsAreThere(t *testing.T) {
	require.Greater(t, len(windowsZones), 130)
	for windows, iana := range windowsZones {
		_, err := loadZone(iana)
		require.NoError(t, err, windows)
	}
}
