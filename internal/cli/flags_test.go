package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestFlagsAreTakenTwiceOrRefused: of a flag that is given twice, no value is left out without a word.
func TestFlagsAreTakenTwiceOrRefused(t *testing.T) {
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Name() == "serve" {
			return // its arguments are patched by appending
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			first, second := "a", "b"
			switch f.Value.Type() {
			case "bool":
				return
			case "int", "int64":
				first, second = "1", "2"
			case "duration":
				first, second = "1s", "2s"
			}
			seen++
			list, ok := f.Value.(pflag.SliceValue)
			if !ok {
				require.ErrorContains(t, cmd.ParseFlags([]string{"--" + f.Name, first, "--" + f.Name, second}), "can be there only once", "%s --%s", cmd.CommandPath(), f.Name)
				return
			}
			require.NoError(t, cmd.ParseFlags([]string{"--" + f.Name, first, "--" + f.Name, second}))
			require.Equal(t, []string{first, second}, list.GetSlice(), "%s --%s", cmd.CommandPath(), f.Name)
		})
	}
	walk(newRootCommand())
	require.Greater(t, seen, 40)
}

func TestAllFilesCount(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	broken, closed, good := file("broken.yaml", "strateggy: Permissive"), file("closed.yaml", "strategy: Restrictive"), file("good.yaml", "strategy: Permissive")
	calendar := file("calendar.yaml", "kind: ConfigMap\nmetadata: {name: holidays}\ndata: {x.ics: \"BEGIN:VCALENDAR\\nEND:VCALENDAR\\n\"}\n")
	for name, files := range map[string][2]string{"the first": {broken, good}, "the second": {good, broken}} {
		t.Run(name, func(t *testing.T) {
			_, err := runSchedule(t, "", "lint", "--strict", "-f", files[0], "-f", files[1])
			require.ErrorContains(t, err, "1 policy is invalid")
		})
	}
	out, err := runSchedule(t, "", "eval", "-f", closed, "-f", good)
	require.NoError(t, err)
	require.Contains(t, out, "closed (Paused)")
	out, err = runSchedule(t, "", "simulate", "-f", good, "--with", calendar, "--with", closed, "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"change": "removed"`)
	_, err = runSchedule(t, "", "eval", "-f", good, "-f", "-")
	require.ErrorContains(t, err, "-: there is no ", "a file in which nothing is")
	_, err = runSchedule(t, "", "eval", "-f", calendar)
	require.ErrorContains(t, err, "there is no ChangeManagementPolicy")
	_, err = runSchedule(t, "strategy: Permissive", "eval", "-f", "-", "-f", "-")
	require.ErrorContains(t, err, "only once")
	_, err = runExplain(t, "", "-f", explained, "--policy", "-", "--source", "-")
	require.ErrorContains(t, err, "only once")
}
