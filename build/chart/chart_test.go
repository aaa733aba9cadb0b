package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheChartIsMadeOfTheManifests: what config/ says is what the chart has.
func TestTheChartIsMadeOfTheManifests(t *testing.T) {
	made, err := templates(filepath.Join("..", "..", "config"))
	require.NoError(t, err)
	committed, err := templatesIn(filepath.Join("..", "..", "charts", "refit", "templates"))
	require.NoError(t, err)
	for name, data := range made {
		require.Equal(t, string(data), string(committed[name]), "%s is not as config/ says: make chart", name)
	}
	require.Len(t, committed, len(made), "the chart has a template that config/ has no more: make chart")
}

func TestWritingRemovesWhatIsMadeNoMore(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir, map[string][]byte{"one.yaml": []byte("1"), "crds/two.yaml": []byte("2")}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "NOTES.txt"), []byte("by hand"), 0o600))
	want := map[string][]byte{"one.yaml": []byte("one"), "crds/three.yaml": []byte("3")}
	require.NoError(t, write(dir, want))
	got, err := templatesIn(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.FileExists(t, filepath.Join(dir, "NOTES.txt"))
}

// TestAnActionInAManifestIsText: alerts have templates of their own.
func TestAnActionInAManifestIsText(t *testing.T) {
	made, err := templates(filepath.Join("..", "..", "config"))
	require.NoError(t, err)
	rules := string(made["prometheusrule-refit.yaml"])
	require.Contains(t, rules, `{{ "{{" }} $labels`)
	require.NotContains(t, rules, "{{ $labels")
}
