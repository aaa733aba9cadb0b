package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// colors are what a terminal shows the marks in.
var colors = map[byte]string{'#': "32", '~': "33", 'x': "35", '+': "1;32", '-': "1;31", '*': "1;33", '.': "2"}

// drawing is a simulation on its way to a terminal.
type drawing struct {
	*simulation
	out              strings.Builder
	colored          bool
	current, altered []segment
	windows          []schedule.Window // those that the rows name
	skipped          bool              // there are hours that the clocks skip
}

// text draws the days, a row each, and says what the marks mean and what changes.
func (s *simulation) text(colored bool) string {
	d := drawing{simulation: s, colored: colored, current: s.segments(s.from, s.until), windows: s.windows(s.policies)}
	title := s.names()
	if s.changed != nil {
		d.altered, d.windows = s.changed.segments(s.from, s.until), s.windows(s.changed)
		title += " -> " + s.changed.names() + " of " + s.with
	}
	fmt.Fprintf(&d.out, "%s, %s\n", title, s.loc)
	for noon := s.firstNoon(); noon.Before(s.until); noon = noon.AddDate(0, 0, 1) {
		d.row(noon)
	}
	d.legend()
	d.changeList()
	return d.out.String()
}

func (s *simulation) firstNoon() time.Time { return noon(s.from, s.loc, 0) }

// row draws a day. A month begins with its name and the hours, a week with an empty line, and a weekend is marked.
func (d *drawing) row(noon time.Time) {
	first := noon.Equal(d.firstNoon())
	switch {
	case first || noon.Day() == 1:
		fmt.Fprintf(&d.out, "\n%-16s0      6      12     18\n", noon.Format("January 2006"))
	case noon.Weekday() == time.Monday:
		d.out.WriteByte('\n')
	}
	label := noon.Format("  Mon _2")
	if w := noon.Weekday(); w == time.Saturday || w == time.Sunday {
		label = noon.Format("= Mon _2")
	}
	line := fmt.Sprintf("%-16s%s", label, d.marks(d.hoursOf(noon, d.current, d.altered)))
	if remarks := d.remarks(noon); len(remarks) > 0 {
		line += "  " + strings.Join(remarks, "; ")
	}
	d.out.WriteString(strings.TrimRight(line, " ") + "\n")
}

func (d *drawing) marks(h *hours) string {
	var b strings.Builder
	for i, cell := range h {
		if i > 0 && i%6 == 0 {
			b.WriteByte(' ')
		}
		d.skipped = d.skipped || cell.total == 0
		b.WriteString(d.paint(cell.mark()))
	}
	return b.String()
}

func (d *drawing) paint(mark byte) string {
	if color := colors[mark]; d.colored && color != "" {
		return "\x1b[" + color + "m" + string(mark) + "\x1b[0m"
	}
	return string(mark)
}

// remarks names the windows that start on a day, the reasons of excludes, and a change of the clocks.
func (d *drawing) remarks(noon time.Time) []string {
	from, until := startOfDay(noon), startOfDay(noon.AddDate(0, 0, 1))
	var all []string
	for _, w := range d.windows {
		if !w.Start.Before(from) && w.Start.Before(until) {
			all = append(all, d.brief(w))
		}
	}
	shown, segments := d.policies, d.current
	if d.changed != nil {
		shown, segments = d.changed, d.altered
	}
	for _, g := range segments {
		if g.state == stateExcluded && g.start.Before(until) && from.Before(g.end) {
			all = append(all, shown.excludedFor(latest(g.start, from)))
		}
	}
	if length := until.Sub(from); length != 24*time.Hour {
		all = append(all, "the clocks change: a day of "+short(length))
	}
	return slices.Compact(all)
}

// brief says when a window is, where its day is known.
func (d *drawing) brief(w schedule.Window) string {
	start := w.Start.In(d.loc).Format("15:04")
	if w.End.IsZero() {
		return "from " + start + " on"
	}
	layout := "15:04"
	switch days := w.End.In(d.loc).YearDay() - w.Start.In(d.loc).YearDay(); {
	case w.End.Sub(w.Start) > 6*24*time.Hour:
		layout = "2006-01-02 15:04"
	case days != 0:
		layout = "Mon 15:04"
	}
	return fmt.Sprintf("%s to %s, %s", start, w.End.In(d.loc).Format(layout), short(w.End.Sub(w.Start)))
}

// excludedFor names the excludes at an instant, by their reasons if they have one.
func (p *policies) excludedFor(t time.Time) string {
	var all []string
	for _, s := range p.schedules {
		for _, x := range s.Excludes() {
			if x.Covers(t) {
				all = append(all, reasonOf(x))
			}
		}
	}
	return "excluded: " + strings.Join(slices.Compact(all), ", ")
}

func reasonOf(x schedule.Source) string {
	if x.Reason != "" {
		return x.Reason
	}
	return x.Text
}

func (d *drawing) legend() {
	marks := []string{"# open", "~ open for a part of the hour", "x excluded", ". closed"}
	if d.changed != nil {
		marks = append(marks, "+ would open", "- would close", "* would open and close")
	}
	for i, m := range marks {
		marks[i] = d.paint(m[0]) + m[1:]
	}
	fmt.Fprintf(&d.out, "\n%s\n", strings.Join(marks, "   "))
	if d.skipped {
		d.out.WriteString("Hours that are blank are skipped by the clocks.\n")
	}
	d.out.WriteString("Open for " + total(d.current))
	if d.changed != nil {
		d.out.WriteString(", and for " + total(d.altered) + " with " + d.with)
	}
	fmt.Fprintf(&d.out, " of %s.\n", short(d.until.Sub(d.from)))
}

func total(segments []segment) string {
	var open time.Duration
	for _, g := range only(segments, stateOpen) {
		open += g.end.Sub(g.start)
	}
	return short(open)
}

// changeList says what would become of which windows.
func (d *drawing) changeList() {
	if d.changed == nil {
		return
	}
	changes := d.changes()
	if len(changes) == 0 {
		fmt.Fprintf(&d.out, "\n%s alters no window in this time.\n", d.with)
		return
	}
	fmt.Fprintf(&d.out, "\n%s would alter:\n", d.with)
	for _, c := range changes {
		fmt.Fprintf(&d.out, "  %s\n", c.describe(d.loc))
	}
}
