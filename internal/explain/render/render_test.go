package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/printer"
)

func forecast() *explain.Forecast {
	at := time.Date(2026, 10, 10, 20, 0, 0, 0, time.UTC)
	when := &explain.When{NotBefore: &at, Reason: "OutsideWindow", Policies: []string{"saturdays"}, Expected: explain.Duration(20 * time.Minute), AtLeast: explain.Duration(time.Hour), LastDone: &at}
	f := explain.NewForecast()
	f.Owners = []*explain.Owner{{
		Kind: "MachineDeployment", Namespace: "fleet", Name: "workers", Verdict: explain.InPlace, Disruption: disruption.Restart, AtOnce: 2,
		Because: []string{"spec.template.spec.bootstrap"}, Actions: []string{"Restart a.service"}, Machines: explain.Counts{Total: 6, InPlace: 5, Replaced: 1}, When: when,
		Fields: []handlers.FieldExplanation{
			{Object: fieldset.BootstrapConfig, Path: `spec.files[path="/etc/a|b"].content`, Covered: true, Updater: "files", Disruption: disruption.Restart, Actions: []string{"Restart a.service"}},
			{Object: fieldset.BootstrapConfig, Path: "spec.x", Disruption: disruption.Replace, Reason: "`@somebody` <b>\nhas\x1b[31m a word " + strings.Repeat("x", 100)},
		},
		Adds: []string{"makes one machine more"}, Notes: []string{"a note"},
		Each: []*explain.Machine{{Name: "w1", Verdict: explain.InPlace, Disruption: disruption.Restart, When: when}, {Name: "w2", Verdict: explain.Unknown, Why: "nobody knows"}},
	}}
	f.Notes = []string{"something is left out"}
	f.Finish()
	return f
}

func write(t *testing.T, f *explain.Forecast, format string, width int) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Write(&out, f, format, width))
	return out.String()
}

func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{1, 40, 60, 80, 120, 200} {
		out := write(t, forecast(), printer.Table, width)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), max(width, leastWide+leastWide/2), "%d: %q", width, line)
			require.Equal(t, strings.TrimRight(line, " \n"), strings.TrimRight(line, "\n"), "no blanks at the end")
		}
		require.NotContains(t, out, "\x1b")
	}
	wide := write(t, forecast(), printer.Table, 0)
	require.Contains(t, wide, "MachineDeployment/workers  InPlace  6: 5 in place, 1 replaced  Restart     2026-10-10T20:00:00Z\n")
	require.Contains(t, wide, "not before 2026-10-10T20:00:00Z (OutsideWindow); by saturdays; one machine takes 20m; all at least 1h; all done at about 2026-10-10T20:00:00Z\n")
	require.Contains(t, wide, "  Cluster API  makes one machine more\n  note         a note\n")
	require.Contains(t, wide, "Verdict: InPlace\nDisruption: Replace\nNote: something is left out\n")
}

func TestJSONIsForPrograms(t *testing.T) {
	var out struct {
		Verdict string
		Owners  []struct {
			Machines struct{ Total, InPlace, Replaced int }
			When     struct{ NotBefore, Expected, AtLeast string }
			Fields   []struct{ Path string }
			Each     []struct{ Name string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(write(t, forecast(), printer.JSON, 80)), &out))
	require.Equal(t, "InPlace", out.Verdict)
	require.Equal(t, 5, out.Owners[0].Machines.InPlace)
	require.Equal(t, "2026-10-10T20:00:00Z", out.Owners[0].When.NotBefore)
	require.Equal(t, "20m", out.Owners[0].When.Expected)
	require.Len(t, out.Owners[0].Each, 2)
}

// Who opens a pull request writes names and values, and must not write its comments.
func TestMarkdownHasNoMarkdownOfOthers(t *testing.T) {
	f := forecast()
	f.Owners[0].Name = "<img src=x>"
	out := write(t, f, printer.Markdown, 0)
	require.Contains(t, out, "### refit: InPlace\n")
	require.Contains(t, out, "<code>MachineDeployment/&lt;img src=x&gt;</code>")
	require.Contains(t, out, "`spec.files[path=\"/etc/a\\|b\"].content`")
	require.Contains(t, out, "'@somebody' <b> has [31m a word")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "|") {
			require.True(t, strings.HasSuffix(line, "|\n"), line)
		}
		require.Zero(t, strings.Count(line, "`")%2, line)
	}
}

func TestNothing(t *testing.T) {
	f := explain.NewForecast()
	f.Finish()
	for _, format := range []string{printer.Table, printer.Markdown} {
		require.Contains(t, write(t, f, format, 0), "none is changed")
	}
	require.Contains(t, write(t, f, printer.JSON, 0), `"owners": []`)
	require.Error(t, Write(&bytes.Buffer{}, f, "xml", 0))
	require.Contains(t, write(t, f, printer.YAML, 0), "owners: []\n")
}

func TestNamespacesAreNamedWhereThereAreSeveral(t *testing.T) {
	f := forecast()
	other := *f.Owners[0]
	other.Namespace = "other"
	f.Owners = append(f.Owners, &other)
	out := write(t, f, printer.Table, 0)
	require.Contains(t, out, "\nfleet MachineDeployment/workers ")
	require.Contains(t, out, "\nother MachineDeployment/workers ")
}

func TestLongListsInComments(t *testing.T) {
	f := forecast()
	for range 100 {
		f.Owners[0].Each = append(f.Owners[0].Each, f.Owners[0].Each[0])
	}
	require.Contains(t, write(t, f, printer.Markdown, 0), "and 52 more machines")
}

func TestWhen(t *testing.T) {
	at := time.Date(2026, 10, 10, 20, 0, 0, 0, time.UTC)
	require.Equal(t, "nobody knows when (Paused)", when(&explain.When{Reason: "Paused"}))
	require.Equal(t, "from now on (Open)", when(&explain.When{Reason: "Open", NotBefore: &at}))
	require.Equal(t, "Paused", notBefore(&explain.When{Reason: "Paused"}))
	require.Equal(t, "now", notBefore(&explain.When{Reason: "Open", NotBefore: &at}))
	require.Equal(t, "-", notBefore(nil))
}
