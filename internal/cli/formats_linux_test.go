package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/check"
	"github.com/capi-refit/refit/internal/conformance"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/internal/printer/printertest"
)

// TestWhatIsShownIsForProgramsToo: each command with -o has JSON and YAML.
func TestWhatIsShownIsForProgramsToo(t *testing.T) {
	var with []string
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if f := cmd.Flags().Lookup("output"); f != nil && f.Shorthand == "o" {
			with = append(with, cmd.CommandPath())
			complete, ok := cmd.GetFlagCompletionFunc("output")
			require.True(t, ok, cmd.CommandPath())
			formats, _ := complete(cmd, nil, "")
			require.Contains(t, formats, printer.JSON, cmd.CommandPath())
			require.Contains(t, formats, printer.YAML, cmd.CommandPath())
			require.Contains(t, []string{printer.Text, printer.Table}, f.DefValue, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRootCommand())
	require.ElementsMatch(t, []string{
		"refit check", "refit conformance", "refit diff", "refit drift", "refit explain", "refit pending", "refit schedule coverage", "refit schedule eval",
		"refit schedule lint", "refit schedule next", "refit schedule simulate", "refit status", "refit version",
	}, with)
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	const policies, now = "testdata/policies.yaml", "--now=2026-10-03T20:00:00Z"
	before, after := filepath.Join("..", "..", "docs", "examples", "explain", "before"), filepath.Join("..", "..", "docs", "examples", "explain", "after")
	for _, args := range [][]string{
		{"schedule", "eval", "-f", policies, now},
		{"schedule", "next", "-f", policies, now},
		{"schedule", "lint", "-f", policies, now},
		{"schedule", "simulate", "-f", policies, now},
		{"explain", "--from", before, "--to", after},
		{"explain", "-f", filepath.Join("..", "..", "handlers", "testdata", "canupdatemachineset-files-ntp-users.json")},
		{"version", "--client"},
	} {
		said := map[string][]byte{}
		for _, format := range []string{printer.JSON, printer.YAML} {
			var out, errs bytes.Buffer
			root := newRootCommand()
			root.SetOut(&out)
			root.SetErr(&errs)
			root.SetArgs(append(args[:len(args):len(args)], "-o", format))
			require.NoError(t, root.ExecuteContext(t.Context()), "%v: %s", args, errs.String())
			said[format] = out.Bytes()
		}
		require.True(t, json.Valid(said[printer.JSON]), args)
		require.False(t, json.Valid(said[printer.YAML]), args)
		converted, err := yaml.YAMLToJSON(said[printer.YAML])
		require.NoError(t, err)
		require.JSONEq(t, string(said[printer.JSON]), string(converted), args)
	}
}

// TestWideNamesAllMachines: others are too many for people.
func TestWideNamesAllMachines(t *testing.T) {
	one := &covered{Namespace: "fleet", Cluster: "prod", Role: "Worker"}
	for n := range listed + 5 {
		one.Unselected = append(one.Unselected, fmt.Sprintf("worker-%02d", n))
	}
	said := func(format string) string {
		var out strings.Builder
		require.NoError(t, coverage{one}.print(&out, format))
		return out.String()
	}
	require.Contains(t, said(printer.Table), "worker-19 and 5 more\n")
	require.Contains(t, said(printer.Wide), "worker-19, worker-20, worker-21, worker-22, worker-23, worker-24\n")
}

// TestMessagesFitTheTerminal: what has no terminal gets lines as long as they are.
func TestMessagesFitTheTerminal(t *testing.T) {
	const lineLength = 70
	findings := []check.Finding{{
		Level: check.Error, Check: "managers", Object: "capi-system/capi-controller-manager", Message: "the feature gate InPlaceUpdates is off, so that machines are replaced",
		Do: "set InPlaceUpdates=true among --feature-gates of the manager",
	}}
	missed := coverage{{Namespace: "fleet", Cluster: "prod", Role: "Worker", Machines: 2, Policies: []string{"saturdays", "nights", "everything-else"}, Unselected: []string{"worker-1", "worker-2"}}}
	broken := &conformance.Report{Findings: []conformance.Finding{{
		Law: conformance.Law{Name: "KeepsTheRest", Demands: "A patch changes what is claimed and nothing else", Source: "the proposal"}, Result: conformance.Fail,
		Evidence: []string{"it has set spec.version as well, of which nobody has said anything to it"},
	}}}
	for name, print := range map[string]func(*os.File) error{
		"check":       func(f *os.File) error { return (&checkFlags{}).print(f, findings) },
		"coverage":    func(f *os.File) error { return missed.print(f, printer.Table) },
		"conformance": func(f *os.File) error { return printConformance(f, broken, printer.Table) },
		"version": func(f *os.File) error {
			return versions{Servers: []serverVersion{{Namespace: "refit-system", Name: "refit", Image: "registry.example.org/refit:v1", Replicas: 2}}}.print(f, printer.Text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			wrapped := printertest.On(t, lineLength, func(f *os.File) { require.NoError(t, print(f)) })
			file, err := os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			defer file.Close()
			require.NoError(t, print(file))
			plain, err := os.ReadFile(file.Name())
			require.NoError(t, err)
			require.Greater(t, strings.Count(wrapped, "\n"), bytes.Count(plain, []byte("\n")))
			for line := range strings.Lines(wrapped) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), lineLength, wrapped)
			}
			require.ElementsMatch(t, strings.Fields(string(plain)), strings.Fields(wrapped))
		})
	}
}
