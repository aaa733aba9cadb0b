package printer

import (
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/capi-refit/refit/internal/plain"
)

const (
	gap = 2 // between columns
	// narrowest is how many characters a column keeps however narrow a terminal is.
	narrowest = 8
)

// Rows are the rows of a table, the header first. All have as many cells.
type Rows [][]string

// Add adds a row.
func (r *Rows) Add(cells ...string) { *r = append(*r, cells) }

// WithoutEmpty returns the rows without columns that have nothing but a header.
func (r Rows) WithoutEmpty() Rows {
	out := make(Rows, len(r))
	for i := range r[0] {
		if !slices.ContainsFunc(r[1:], func(row []string) bool { return row[i] != "" }) {
			continue
		}
		for n, row := range r {
			out[n] = append(out[n], row[i])
		}
	}
	return out
}

// Text returns the rows in columns, each line behind an indent. Where they are too wide for the width, the widest columns get narrower, and what is in them
// more lines. 0 is no width.
func (r Rows) Text(indent string, width int) string {
	cells := make(Rows, len(r))
	for n, row := range r {
		for _, text := range row {
			cells[n] = append(cells[n], Clean(text))
		}
	}
	widths := cells.widths()
	if width > 0 {
		cells.shrink(widths, width-len(indent)-gap*(len(widths)-1))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	for _, row := range cells {
		for _, line := range broken(row, widths) {
			w.Write([]byte(strings.Join(line, "\t") + "\n")) //nolint:errcheck // a Builder takes everything
		}
	}
	w.Flush() //nolint:errcheck // a Builder takes everything
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(indent+line, " \n") + "\n")
	}
	return out.String()
}

// Clean leaves out of a text what is no part of a line.
func Clean(s string) string {
	return strings.Join(strings.FieldsFunc(s, plain.Unfit), " ")
}

// widths are how many characters the columns have.
func (r Rows) widths() []int {
	widths := make([]int, len(r[0]))
	for _, row := range r {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	return widths
}

// shrink has the columns come to no more than room, the widest first and of those the last, which is for messages. None gets narrower than its header.
func (r Rows) shrink(widths []int, room int) {
	for {
		sum, widest := 0, -1
		for i, w := range widths {
			sum += w
			if w > max(narrowest, utf8.RuneCountInString(r[0][i])) && (widest < 0 || w >= widths[widest]) {
				widest = i
			}
		}
		if sum <= room || widest < 0 {
			return
		}
		widths[widest]--
	}
}

// broken returns the lines of a row.
func broken(row []string, widths []int) [][]string {
	var lines [][]string
	for i, text := range row {
		for n, part := range wrap(text, widths[i]) {
			if n == len(lines) {
				lines = append(lines, make([]string, len(row)))
			}
			lines[n][i] = part
		}
	}
	return lines
}
