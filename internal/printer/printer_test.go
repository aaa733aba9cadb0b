package printer

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestFormats(t *testing.T) {
	var o Output
	cmd := &cobra.Command{Use: "list"}
	o.Add(cmd, Table, Wide+" (with the Machines)", JSON, YAML, Name)
	require.Equal(t, "How to show it: table, wide (with the Machines), json, yaml or name.", cmd.Flags().Lookup("output").Usage)
	for given, want := range map[string]string{"": Table, Text: Table, Table: Table, Wide: Wide, JSON: JSON, YAML: YAML, Name: Name} {
		o.Format = given
		require.NoError(t, o.Check())
		require.Equal(t, want, o.Format)
	}
	for _, other := range []string{"xml", Markdown, "JSON", "wide (with the Machines)"} {
		o.Format = other
		require.EqualError(t, o.Check(), `--output is "`+other+`" and can be table, wide, json, yaml, name`)
	}
}

func TestProgramsReadTheSameInBoth(t *testing.T) {
	type finding struct {
		Check string `json:"check"`
		Of    int    `json:"of,omitempty"`
	}
	for format, want := range map[string]string{
		JSON: "[\n  {\n    \"check\": \"a<b\"\n  }\n]\n",
		YAML: "- check: a<b\n",
	} {
		var out strings.Builder
		done, err := Print(&out, format, []finding{{Check: "a<b"}})
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, want, out.String())
	}
	var out strings.Builder
	done, err := Print(&out, Table, nil)
	require.NoError(t, err)
	require.False(t, done, "that is for people")
	require.Empty(t, out.String())
}

func TestColumns(t *testing.T) {
	rows := Rows{{"NAME", "STEP", "MESSAGE"}}
	rows.Add("w-1", "", "the node reports: restart kubelet.service: status 1")
	rows.Add("worker-2", "", "waits\x1b[2J")
	require.Equal(t, strings.Join([]string{
		"NAME      STEP  MESSAGE",
		"w-1             the node reports: restart kubelet.service: status 1",
		"worker-2        waits [2J",
		"",
	}, "\n"), rows.Text("", 0))
	require.Equal(t, strings.Join([]string{
		"  NAME      MESSAGE",
		"  w-1       the node",
		"            reports: restart",
		"            kubelet.service:",
		"            status 1",
		"  worker-2  waits [2J",
		"",
	}, "\n"), rows.WithoutEmpty().Text("  ", 28))
	require.Equal(t, "NAME\n", Rows{{"NAME"}}.Text("", 80))
}

// TestLinesFit: no line is longer than the terminal, and no word is lost.
func TestLinesFit(t *testing.T) {
	const text = "  a policy that never opens, ünd a word-that-is-longer-than-the-terminal-is-wide-by-far\n\nshort\n    → do it"
	for width := 20; width < 100; width++ {
		folded := Fold(text, width)
		for line := range strings.Lines(folded) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width)
		}
		require.Equal(t, strings.Join(strings.Fields(text), ""), strings.Join(strings.Fields(folded), ""))
	}
	require.Equal(t, "  one two\n  three\nfour\n", Fold("  one two three\nfour\n", 12))
	require.Equal(t, text, Fold(text, 0), "what is no terminal gets what was said")
	require.Equal(t, "ERROR  the gate\n       is off\n", Labelled("ERROR  ", "the gate is off", 15))
	require.Equal(t, "ERROR  the gate is off\n", Labelled("ERROR  ", "the gate is off", 0))
}

func TestAFileIsNoTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	require.Zero(t, Width(file))
	require.Zero(t, Width(&strings.Builder{}))
}
