package cli

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

//go:embed schedule_page.html
var pageText string

// page is a simulation as the template shows it: a table of lanes a week.
type page struct {
	Title, Zone, Now string
	Changed          bool
	With             string
	Weeks            []pageWeek
	Windows          []pageWindow
	Changes          []string
}

type pageWeek struct {
	Title string
	Days  []pageDay
	Lanes []pageLane
}

// pageDay is the heading of a day. Where is its place in the week.
type pageDay struct {
	Where           template.CSS
	Name            string
	Weekend, Begins bool // Begins reports that it is the first of a month
}

// pageLane is what one policy, or all of them, do in a week.
type pageLane struct {
	Name  string
	Class string
	Bars  []pageBar
}

// pageBar is a window, an exclude, or what a change alters.
type pageBar struct {
	Where template.CSS
	Class string
	Title string
}

type pageWindow struct {
	Local, UTC, Length string
	Rules              []string
}

func (s *simulation) html(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, s.page())
}

func (s *simulation) page() page {
	p := page{Title: s.names(), Zone: s.loc.String(), Now: localTime(s.now, s.loc), Changed: s.changed != nil, With: s.with}
	shown := s.policies
	if s.changed != nil {
		shown = s.changed
		p.Title += " -> " + s.changed.names()
		for _, c := range s.changes() {
			p.Changes = append(p.Changes, c.describe(s.loc))
		}
	}
	lanes := s.lanes()
	for noon := s.firstNoon(); noon.Before(s.until); noon = noon.AddDate(0, 0, 7) {
		p.Weeks = append(p.Weeks, s.pageWeek(noon, lanes))
	}
	for _, w := range s.windows(shown) {
		one := pageWindow{Local: between(w, s.loc), UTC: betweenUTC(w)}
		if !w.Start.IsZero() && !w.End.IsZero() {
			one.Length = short(w.End.Sub(w.Start))
		}
		o := shown.opening(w)
		for _, permit := range o.permits {
			one.Rules = append(one.Rules, permit.String())
		}
		for _, x := range append(o.late, o.early...) {
			one.Rules = append(one.Rules, "cut by "+x.String())
		}
		p.Windows = append(p.Windows, one)
	}
	return p
}

// span is a time with what is said of it.
type span struct {
	schedule.Window
	class, title string
}

// lane is what is drawn in one row of each week.
type lane struct {
	name, class string
	spans       []span
}

// lanes returns one for each policy, one for all together, and what a change alters.
func (s *simulation) lanes() []lane {
	var all []lane
	for _, one := range s.schedules {
		all = append(all, s.policyLane(one.Name(), s.only(one)))
	}
	all = append(all, s.jointLane("all together", s.policies))
	if s.changed == nil {
		return all
	}
	for _, one := range s.changed.schedules {
		all = append(all, s.policyLane(one.Name()+" (changed)", s.changed.only(one)))
	}
	all = append(all, s.jointLane("all together (changed)", s.changed))
	before, after := s.segments(s.from, s.until), s.changed.segments(s.from, s.until)
	diff := lane{name: "the difference", class: "joint"}
	for _, g := range subtract(after, before) {
		diff.add(schedule.Window{Start: g.start, End: g.end}, "opens", s.tooltip("would open", g))
	}
	for _, g := range subtract(before, after) {
		diff.add(schedule.Window{Start: g.start, End: g.end}, "closes", s.tooltip("would close", g))
	}
	return append(all, diff)
}

func (l *lane) add(w schedule.Window, class, title string) {
	l.spans = append(l.spans, span{w, class, title})
}

func (s *simulation) tooltip(what string, g segment) string {
	w := schedule.Window{Start: g.start, End: g.end}
	return fmt.Sprintf("%s: %s (UTC: %s)", what, between(w, s.loc), betweenUTC(w))
}

// policyLane shows the windows of a policy, and its excludes with their reasons, also where nothing was permitted.
func (s *simulation) policyLane(name string, p *policies) lane {
	l := lane{name: name}
	for _, one := range p.schedules {
		for _, x := range one.Excludes() {
			for w := range x.Windows(s.from, s.until) {
				l.add(w, "excluded", fmt.Sprintf("excluded for %s: %s (UTC: %s)", reasonOf(x), between(w, s.loc), betweenUTC(w)))
			}
		}
	}
	s.addWindows(&l, p)
	return l
}

// jointLane shows the windows of policies together, and where they would be open but for an exclude.
func (s *simulation) jointLane(name string, p *policies) lane {
	l := lane{name: name, class: "joint"}
	for _, g := range only(p.segments(s.from, s.until), stateExcluded) {
		l.add(schedule.Window{Start: g.start, End: g.end}, "excluded", s.tooltip(p.excludedFor(g.start), g))
	}
	s.addWindows(&l, p)
	return l
}

func (s *simulation) addWindows(l *lane, p *policies) {
	for _, w := range s.windows(p) {
		var rules []string
		for _, permit := range p.opening(w).permits {
			rules = append(rules, permit.Text)
		}
		l.add(w, "open", fmt.Sprintf("open: %s (UTC: %s), by %s", between(w, s.loc), betweenUTC(w), strings.Join(rules, "; ")))
	}
}

func (s *simulation) pageWeek(noon time.Time, lanes []lane) pageWeek {
	from, until := startOfDay(noon), startOfDay(noon.AddDate(0, 0, 7))
	week := pageWeek{Title: noon.Format("2 January 2006") + " to " + noon.AddDate(0, 0, 6).Format("2 January 2006")}
	for day := noon; day.Before(until); day = day.AddDate(0, 0, 1) {
		weekday := day.Weekday()
		week.Days = append(week.Days, pageDay{
			Where: place(startOfDay(day), startOfDay(day.AddDate(0, 0, 1)), from, until), Name: day.Format("Mon 2 Jan"),
			Weekend: weekday == time.Saturday || weekday == time.Sunday, Begins: day.Day() == 1,
		})
	}
	for _, l := range lanes {
		row := pageLane{Name: l.name, Class: l.class}
		for _, x := range l.spans {
			start, end := latest(x.Start, from), until
			if !x.End.IsZero() {
				end = earliest(x.End, until)
			}
			if start.Before(end) {
				row.Bars = append(row.Bars, pageBar{Where: place(start, end, from, until), Class: x.class, Title: x.title})
			}
		}
		week.Lanes = append(week.Lanes, row)
	}
	return week
}

// place returns where a time lies in a week, in percent of the week's length. It is made of numbers alone.
func place(start, end, from, until time.Time) template.CSS {
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(until.Sub(from)) }
	return template.CSS(fmt.Sprintf("left:%.3f%%;width:%.3f%%", percent(start.Sub(from)), percent(end.Sub(start)))) //nolint:gosec // numbers need no escaping
}
