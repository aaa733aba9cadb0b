package admin

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/capi-refit/refit/internal/printer"
)

// maxStep is how many characters of a step are shown in a table.
const maxStep = 32

// table writes rows as columns, in lines of at most width characters. 0 is no bound. A column that is empty everywhere is left out.
func table(rows []row, width int) string {
	all := printer.Rows{{"NAMESPACE", "NAME", "PHASE", "REASON", "STEP", "PROGRESS", "AGE", "MESSAGE"}}
	for _, r := range rows {
		all.Add(r.Namespace, r.Name, r.Phase, r.Reason, cut(r.Step, maxStep), r.Progress, r.Age, r.Message)
	}
	return all.WithoutEmpty().Text("", width)
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
