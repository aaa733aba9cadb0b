package admin

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxStep is how many characters of a step are shown in a table.
const maxStep = 32

// minMessage is how many characters of a message are shown however narrow a terminal is.
const minMessage = 20

// table writes rows as columns, with the message last, cut so that a line is at most width characters. 0 is no bound. A column
// that is empty everywhere is left out.
func table(rows []row, width int) string {
	header := []string{"NAMESPACE", "NAME", "PHASE", "REASON", "STEP", "PROGRESS", "AGE", "MESSAGE"}
	cells := [][]string{header}
	for _, r := range rows {
		cells = append(cells, []string{r.Namespace, r.Name, r.Phase, r.Reason, cut(r.Step, maxStep), r.Progress, r.Age, r.Message})
	}
	widths := make([]int, len(header))
	for i := range header {
		for _, line := range cells[1:] {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		if widths[i] > 0 {
			widths[i] = max(widths[i], len(header[i]))
		}
	}
	var out strings.Builder
	for _, line := range cells {
		out.WriteString(layOut(line, widths, width))
	}
	return out.String()
}

// layOut writes one line.
func layOut(line []string, widths []int, width int) string {
	var s strings.Builder
	last := len(line) - 1
	for i, cell := range line[:last] {
		if widths[i] > 0 {
			s.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	message := line[last]
	if width > 0 {
		message = cut(message, max(width-utf8.RuneCountInString(s.String()), minMessage))
	}
	return strings.TrimRight(s.String()+message, " ") + "\n"
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}

// line tells of a row where nothing can be drawn again.
func (r row) line() string {
	parts := []string{r.Namespace + "/" + r.Name, r.Phase + inBrackets(r.Reason)}
	for _, p := range []string{r.Step, r.Progress} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if r.Message == "" {
		return strings.Join(parts, " ")
	}
	return fmt.Sprintf("%s: %s", strings.Join(parts, " "), r.Message)
}
