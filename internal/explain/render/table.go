package render

import (
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/printer"
)

// leastWide is how wide the table is at least.
const leastWide = 40

// text writes a table of the owners, and then what there is to say about each.
func text(f *explain.Forecast, width int) string {
	if width > 0 {
		width = max(width, leastWide)
	}
	var b strings.Builder
	if len(f.Owners) == 0 {
		b.WriteString(printer.Labelled("", nothing, width))
	} else {
		namespaces := several(f)
		rows := printer.Rows{ownerHeader}
		for _, o := range f.Owners {
			rows = append(rows, ownerRow(o, namespaces))
		}
		b.WriteString(rows.Text("", width))
		for _, o := range f.Owners {
			about(&b, o, namespaces, width)
		}
	}
	fmt.Fprintf(&b, "\nVerdict: %s\n", f.Verdict)
	if f.Disruption != "" {
		fmt.Fprintf(&b, "Disruption: %s\n", f.Disruption)
	}
	for _, note := range f.Notes {
		b.WriteString(printer.Labelled("Note: ", printer.Clean(note), width))
	}
	return b.String()
}

// about writes what there is to say about an owner.
func about(b *strings.Builder, o *explain.Owner, namespaces bool, width int) {
	said := remarks(o)
	if len(said)+len(o.Fields)+len(o.Each) == 0 {
		return
	}
	b.WriteString("\n" + printer.Labelled("", printer.Clean(ownerRow(o, namespaces)[0]), width))
	if len(o.Fields) > 0 {
		b.WriteString(append(printer.Rows{fieldHeader}, fieldRows(o)...).Text("  ", width))
	}
	for _, r := range said {
		b.WriteString(printer.Labelled(fmt.Sprintf("  %-13s", r[0]), r[1], width))
	}
	if len(o.Each) > 0 {
		rows := printer.Rows{machineHeader}
		for _, m := range o.Each {
			rows = append(rows, machineRow(m))
		}
		b.WriteString(rows.Text("  ", width))
	}
}
