package render

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/capi-refit/refit/internal/explain"
)

const (
	gap       = 2
	narrowest = 8 // column
	leastWide = 40
)

// text writes a table of the owners, and then what there is to say about each.
func text(f *explain.Forecast, width int) string {
	if width > 0 {
		width = max(width, leastWide)
	}
	var b strings.Builder
	if len(f.Owners) == 0 {
		b.WriteString(wrapped("", nothing, width))
	} else {
		namespaces := several(f)
		rows := [][]string{ownerHeader}
		for _, o := range f.Owners {
			rows = append(rows, ownerRow(o, namespaces))
		}
		b.WriteString(columns("", rows, width))
		for _, o := range f.Owners {
			about(&b, o, namespaces, width)
		}
	}
	fmt.Fprintf(&b, "\nVerdict: %s\n", f.Verdict)
	if f.Disruption != "" {
		fmt.Fprintf(&b, "Disruption: %s\n", f.Disruption)
	}
	for _, note := range f.Notes {
		b.WriteString(wrapped("Note: ", clean(note), width))
	}
	return b.String()
}

// about writes what there is to say about an owner.
func about(b *strings.Builder, o *explain.Owner, namespaces bool, width int) {
	said := remarks(o)
	if len(said)+len(o.Fields)+len(o.Each) == 0 {
		return
	}
	b.WriteString("\n" + wrapped("", clean(ownerRow(o, namespaces)[0]), width))
	if len(o.Fields) > 0 {
		b.WriteString(columns("  ", append([][]string{fieldHeader}, fieldRows(o)...), width))
	}
	for _, r := range said {
		b.WriteString(wrapped(fmt.Sprintf("  %-13s", r[0]), r[1], width))
	}
	if len(o.Each) > 0 {
		rows := [][]string{machineHeader}
		for _, m := range o.Each {
			rows = append(rows, machineRow(m))
		}
		b.WriteString(columns("  ", rows, width))
	}
}

// columns writes rows in columns. Where they are too wide for the width, the widest ones get narrower, and what is in them more lines.
func columns(indent string, rows [][]string, width int) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	shrink(widths, width-len(indent)-gap*(len(widths)-1), width > 0)
	var b strings.Builder
	for _, row := range rows {
		cells := make([][]string, len(row))
		lines := 0
		for i, text := range row {
			cells[i] = wrap(text, widths[i])
			lines = max(lines, len(cells[i]))
		}
		for n := range lines {
			line := indent
			for i, cell := range cells {
				part := ""
				if n < len(cell) {
					part = cell[n]
				}
				line += part + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(part)+gap)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return b.String()
}

// shrink has widths come to no more than room.
func shrink(widths []int, room int, bounded bool) {
	for bounded {
		sum, widest := 0, 0
		for i, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = i
			}
		}
		if sum <= room || widths[widest] <= narrowest {
			return
		}
		widths[widest]--
	}
}

// wrapped writes a text behind a label, in lines of the width.
func wrapped(label, text string, width int) string {
	indent := utf8.RuneCountInString(label)
	lines := wrap(text, width-indent)
	if width == 0 {
		lines = []string{text}
	}
	return strings.TrimRight(label+strings.Join(lines, "\n"+strings.Repeat(" ", indent)), " ") + "\n"
}

// wrap breaks a text into lines between words, and a word that is longer than a line within it.
func wrap(text string, width int) []string {
	if width < 1 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		letters := []rune(word)
		for len(letters) > width {
			lines = append(lines, string(letters[:width]))
			letters = letters[width:]
		}
		line = string(letters)
	}
	return append(lines, line)
}
