package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// Kind is what a time is.
type Kind string

// The kinds.
const (
	// Open: changes may start.
	Open Kind = "Open"
	// Excluded: a freeze, whether or not something would be permitted otherwise.
	Excluded Kind = "Excluded"
)

// maxSpans is how many spans of each kind a lane has. A calendar may have thousands of events, and they are not to hide when a policy is open.
const maxSpans = 100

// Span is a time from Start until just before End. It lies in the time that was asked about; Begun and Goes report that it is longer.
type Span struct {
	Kind  Kind      `json:"kind"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Begun bool      `json:"begun,omitempty"`
	Goes  bool      `json:"goes,omitempty"`
	// Text says which rules make it.
	Text string `json:"text,omitempty"`
}

// Lane is what one policy, or several together, say about a time.
type Lane struct {
	Title string `json:"title"`
	// Zone is that of the first policy's dates and times.
	Zone string `json:"zone"`
	// Problem says why a policy can't be read. It is closed then, and so are all together with it.
	Problem string `json:"problem,omitempty"`
	// Spans are in order, and those that are excluded before those that are open.
	Spans []Span `json:"spans"`
	// More is how many spans were left out.
	More int `json:"more,omitempty"`
}

// LaneOf lays out when all of the schedules are open together, for some change at least, and what they exclude.
func LaneOf(from, until time.Time, title string, schedules ...*schedule.Schedule) Lane {
	lane := Lane{Title: title, Zone: time.UTC.String(), Spans: []Span{}}
	if len(schedules) > 0 {
		lane.Zone = schedules[0].Location().String()
	}
	widest := make([]*schedule.Schedule, len(schedules))
	for i, s := range schedules {
		if err := s.Err(from); err != nil {
			lane.Problem = err.Error()
			return lane
		}
		widest[i] = s.Widest()
	}
	l := layout{Lane: &lane, from: from, until: until, spans: map[Kind]int{}}
	l.excludes(widest)
	for w := range schedule.Windows(from, until, widest...) {
		l.add(Open, w, permits(w, from, until, widest))
	}
	return lane
}

// layout is a lane that is being laid out.
type layout struct {
	*Lane
	from, until time.Time
	spans       map[Kind]int
}

// excludes adds what the schedules exclude, in order, each as long as it is by itself.
func (l *layout) excludes(schedules []*schedule.Schedule) {
	type excluded struct {
		schedule.Window
		text string
	}
	var all []excluded
	for _, s := range schedules {
		for _, x := range s.Excludes() {
			for w := range x.Windows(l.from, l.until) {
				all = append(all, excluded{w, textOf(x, len(schedules) > 1)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b excluded) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.text, b.text)) })
	for _, x := range all {
		l.add(Excluded, x.Window, x.text)
	}
}

// add adds the part of a window that lies in the time that was asked about, unless there are enough of the kind.
func (l *layout) add(kind Kind, w schedule.Window, text string) {
	s := Span{Kind: kind, Start: w.Start, End: w.End, Text: text}
	if w.Start.Before(l.from) { // also one whose start is not known
		s.Start, s.Begun = l.from.UTC(), true
	}
	if w.End.IsZero() || w.End.After(l.until) {
		s.End, s.Goes = l.until.UTC(), true
	}
	if !s.Start.Before(s.End) {
		return
	}
	if l.spans[kind] >= maxSpans {
		l.More++
		return
	}
	l.spans[kind]++
	l.Spans = append(l.Spans, s)
}

// permits names the permits of which a window is made.
func permits(w schedule.Window, from, until time.Time, schedules []*schedule.Schedule) string {
	start, end := w.Start, w.End
	if start.Before(from) {
		start = from
	}
	if end.IsZero() || end.After(until) {
		end = until
	}
	var all []string
	for _, s := range schedules {
		for _, p := range s.Permits() {
			for range p.Windows(start, end) {
				all = append(all, textOf(p, len(schedules) > 1))
				break
			}
		}
	}
	return strings.Join(all, "; ")
}

// textOf says what a source has, and of which policy it is where there are several.
func textOf(s schedule.Source, several bool) string {
	text := s.Text
	if s.Reason != "" {
		text = s.Reason + " (" + text + ")"
	}
	if several {
		text = s.Policy + ": " + text
	}
	return text
}
