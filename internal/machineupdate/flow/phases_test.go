package flow_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

var phases = []refitv1.Phase{
	refitv1.PhasePending, refitv1.PhaseWaiting, refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying,
	refitv1.PhaseSucceeded, refitv1.PhaseFailed,
}

func TestPhases(t *testing.T) {
	for _, from := range phases {
		ended := from == refitv1.PhaseSucceeded || from == refitv1.PhaseFailed
		require.True(t, flow.Permits(from, refitv1.PhasePending), "%s: other specs can always be asked for", from)
		require.Equal(t, !ended, flow.Permits(from, refitv1.PhaseFailed) && from != refitv1.PhaseFailed, "%s: it can fail until it has ended", from)
		require.False(t, flow.Permits(from, "") && from != "", "%s: nothing is forgotten", from)
		worked := slices.Contains([]refitv1.Phase{refitv1.PhaseApplying, refitv1.PhaseWaiting, refitv1.PhaseVerifying}, from)
		require.Equal(t, worked, flow.Permits(from, refitv1.PhaseVerifying), "%s: only work is verified", from)
	}
	for _, to := range phases {
		require.Equal(t, to == refitv1.PhasePending, flow.Permits("", to), "an update begins as Pending: %s", to)
		begun := slices.Contains([]refitv1.Phase{refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying}, to)
		for _, ended := range []refitv1.Phase{refitv1.PhaseSucceeded, refitv1.PhaseFailed} {
			require.False(t, begun && flow.Permits(ended, to), "%s to %s: what has ended begins again before it does anything", ended, to)
		}
	}
}

// TestDiagram demands that the docs show the transitions that there are. UPDATE_DOCS=1 writes them.
func TestDiagram(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "concepts.md")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), "```mermaid\n")
	require.True(t, ok, "%s has no diagram", path)
	shown, after, _ := strings.Cut(rest, "```\n")
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(path, []byte(before+"```mermaid\n"+flow.Diagram()+"```\n"+after), 0o600))
		return
	}
	require.Equal(t, flow.Diagram(), shown, "%s: UPDATE_DOCS=1 go test ./internal/machineupdate/flow", path)
}

// TestTheDiagramHasEachTransition demands that the diagram has all that is permitted, and nothing else.
func TestTheDiagramHasEachTransition(t *testing.T) {
	var shown []string
	for line := range strings.Lines(flow.Diagram()) {
		from, rest, ok := strings.Cut(strings.TrimSpace(line), " --> ")
		if !ok {
			continue
		}
		to, _, _ := strings.Cut(rest, ":")
		switch from {
		case "[*]":
			from = ""
		case "work":
			for _, p := range phases {
				if p != refitv1.PhaseWaiting && p != refitv1.PhaseSucceeded && p != refitv1.PhaseFailed && string(p) != to {
					shown = append(shown, string(p)+" "+to)
				}
			}
			continue
		}
		shown = append(shown, from+" "+to)
	}
	var permitted []string
	for _, from := range append([]refitv1.Phase{""}, phases...) {
		for _, to := range phases {
			if from != to && flow.Permits(from, to) {
				permitted = append(permitted, string(from)+" "+string(to))
			}
		}
	}
	slices.Sort(shown)
	slices.Sort(permitted)
	require.Equal(t, permitted, slices.Compact(shown))
}
