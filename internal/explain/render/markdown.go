package render

import (
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/printer"
)

// mostMachines is how many machines of an owner a comment lists.
const mostMachines = 50

// markdown writes a Forecast for a pull request. Whatever comes from objects is code, so that it is no link, and mentions nobody.
func markdown(f *explain.Forecast) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### refit: %s\n\n", f.Verdict)
	if len(f.Owners) == 0 {
		b.WriteString(nothing + "\n")
	} else {
		namespaces := several(f)
		rows(&b, []string{"owner", "verdict", "machines", "disruption", "not before"})
		for _, o := range f.Owners {
			row := ownerRow(o, namespaces)
			rows(&b, nil, code(row[0]), "**"+row[1]+"**", row[2], row[3], cell(row[4]))
		}
		for _, o := range f.Owners {
			details(&b, o, namespaces)
		}
	}
	for _, note := range f.Notes {
		fmt.Fprintf(&b, "\n> %s\n", code(note))
	}
	return b.String()
}

func details(b *strings.Builder, o *explain.Owner, namespaces bool) {
	said := remarks(o)
	if len(said)+len(o.Fields)+len(o.Each) == 0 {
		return
	}
	fmt.Fprintf(b, "\n<details><summary><code>%s</code></summary>\n\n", html.Replace(printer.Clean(ownerRow(o, namespaces)[0])))
	for _, r := range said {
		fmt.Fprintf(b, "- %s: %s\n", r[0], code(r[1]))
	}
	if len(o.Fields) > 0 {
		b.WriteString("\n")
		rows(b, []string{"object", "field", "updater", "disruption", "on the node"})
		for _, row := range fieldRows(o) {
			rows(b, nil, row[0], code(row[1]), cell(row[2]), cell(row[3]), code(row[4]))
		}
	}
	if len(o.Each) > 0 {
		b.WriteString("\n")
		rows(b, []string{"machine", "verdict", "disruption", "not before", "why"})
		for _, m := range o.Each[:min(mostMachines, len(o.Each))] {
			row := machineRow(m)
			rows(b, nil, code(row[0]), row[1], row[2], cell(row[3]), code(row[4]))
		}
		if more := len(o.Each) - mostMachines; more > 0 {
			fmt.Fprintf(b, "\nand %d more machines\n", more)
		}
	}
	b.WriteString("\n</details>\n")
}

// rows writes a header with the line below it, or a row of cells.
func rows(b *strings.Builder, header []string, cells ...string) {
	if header != nil {
		b.WriteString("| " + strings.Join(header, " | ") + " |\n|" + strings.Repeat("---|", len(header)) + "\n")
		return
	}
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

var html = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// code writes a text as code, also in a cell of a table.
func code(s string) string {
	if s = printer.Clean(s); s == "" {
		return ""
	}
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(s) + "`"
}

// cell writes a word of refit's own.
func cell(s string) string { return strings.ReplaceAll(printer.Clean(s), "|", `\|`) }
