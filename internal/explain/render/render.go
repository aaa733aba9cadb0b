package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/schedule"
)

// Formats are all forms of a Forecast.
func Formats() []string {
	return []string{printer.Table, printer.JSON, printer.YAML, printer.Markdown}
}

// Write writes a Forecast in one of the forms. A table has lines of at most width characters; 0: as long as they are.
func Write(w io.Writer, f *explain.Forecast, format string, width int) error {
	if printed, err := printer.Print(w, format, f); printed {
		return err
	}
	switch format {
	case printer.Markdown:
		_, err := io.WriteString(w, markdown(f))
		return err
	case printer.Table:
		_, err := io.WriteString(w, text(f, width))
		return err
	default:
		return fmt.Errorf("the format %q is not one of %s", format, strings.Join(Formats(), ", "))
	}
}

// machines says how many machines an owner has, and what becomes of them.
func machines(o *explain.Owner) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{o.Machines.InPlace, "in place"}, {o.Machines.Replaced, "replaced"}, {o.Machines.Made, "new"}, {o.Machines.Deleted, "deleted"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	all := fmt.Sprint(o.Machines.Total)
	if len(parts) == 0 {
		return all
	}
	return all + ": " + strings.Join(parts, ", ")
}

// or is a text, or a dash where nobody knows one.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// isNow reports whether nothing holds a change back.
func isNow(w *explain.When) bool {
	return w.NotBefore != nil && (w.Reason == string(schedule.Open) || w.Reason == string(schedule.Overridden) || w.Reason == refitv1.NotMaterial)
}

// notBefore says when a change may start.
func notBefore(w *explain.When) string {
	switch {
	case w == nil:
		return "-"
	case w.NotBefore == nil:
		return w.Reason
	case isNow(w):
		return "now"
	default:
		return w.NotBefore.UTC().Format(time.RFC3339)
	}
}

// when says all that is known of when.
func when(w *explain.When) string {
	if w == nil {
		return ""
	}
	parts := []string{"not before " + notBefore(w) + " (" + w.Reason + ")"}
	switch {
	case w.NotBefore == nil:
		parts[0] = "nobody knows when (" + w.Reason + ")"
	case isNow(w):
		parts[0] = "from now on (" + w.Reason + ")"
	}
	if len(w.Policies) > 0 {
		parts = append(parts, "by "+strings.Join(w.Policies, ", "))
	}
	if w.Expected > 0 {
		parts = append(parts, fmt.Sprintf("one machine takes %s", w.Expected))
	}
	if w.AtLeast > 0 {
		parts = append(parts, fmt.Sprintf("all at least %s", w.AtLeast))
	}
	if w.LastDone != nil {
		parts = append(parts, "all done at about "+w.LastDone.UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, "; ")
}

// rows are the fields of an owner's machines.
func fieldRows(o *explain.Owner) [][]string {
	var out [][]string
	for _, f := range o.Fields {
		updater, what, takes := or(f.Updater), strings.Join(f.Actions, ", "), string(f.Disruption)
		switch {
		case len(f.Claimants) > 0:
			updater, takes, what = "UpdaterRegistration/"+strings.Join(f.Claimants, ", "), "-", "claimed, as refit's server was told; what it takes is not known here"
		case !f.Covered:
			updater, what = "-", "can't be updated in place: "+f.Reason
		case f.Reason != "":
			what = strings.Trim(what+": "+f.Reason, ": ")
		}
		out = append(out, []string{string(f.Object), f.Path, updater, takes, what})
	}
	return out
}

var (
	ownerHeader   = []string{"OWNER", "VERDICT", "MACHINES", "DISRUPTION", "NOT BEFORE"}
	fieldHeader   = []string{"OBJECT", "FIELD", "UPDATER", "DISRUPTION", "ON THE NODE"}
	machineHeader = []string{"MACHINE", "VERDICT", "DISRUPTION", "NOT BEFORE", "WHY"}
)

func ownerRow(o *explain.Owner, namespaces bool) []string {
	title := o.Title()
	if namespaces && o.Namespace != "" {
		title = o.Namespace + " " + title
	}
	return []string{title, string(o.Verdict), machines(o), or(string(o.Disruption)), notBefore(o.When)}
}

func machineRow(m *explain.Machine) []string {
	return []string{m.Name, string(m.Verdict), or(string(m.Disruption)), notBefore(m.When), m.Why}
}

// several reports whether owners are of several namespaces, so that each is to be named.
func several(f *explain.Forecast) bool {
	return slices.ContainsFunc(f.Owners, func(o *explain.Owner) bool { return o.Namespace != f.Owners[0].Namespace })
}

// remarks are what is said about an owner beside its fields.
func remarks(o *explain.Owner) [][2]string {
	var out [][2]string
	add := func(label string, texts ...string) {
		for _, t := range texts {
			if t != "" {
				out = append(out, [2]string{label, printer.Clean(t)})
			}
		}
	}
	add("because of", strings.Join(o.Because, ", "))
	add("on the node", strings.Join(o.Actions, ", "))
	if o.AtOnce > 0 {
		add("at once", fmt.Sprintf("%d of %d", o.AtOnce, o.Machines.InPlace+o.Machines.Replaced))
	}
	add("when", when(o.When))
	add("Cluster API", o.Adds...)
	add("note", o.Notes...)
	return out
}

// nothing is said where there is no owner.
const nothing = "Nothing that is given has machines: none is changed."
