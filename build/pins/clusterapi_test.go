package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newer are modules of which refit takes a newer version than Cluster API does, and why.
var newer = map[string]string{
	"github.com/pelletier/go-toml/v2": "containerd's configuration is read by it on nodes",
	"golang.org/x/sys":                "the agent makes system calls by it",
}

// required returns the versions of the modules that a go.mod requires.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	return versions
}

// TestDependenciesAreThoseOfClusterAPI: what both are made of has been tested together by Cluster API. Which patch of Cluster API is the newest one is not
// known without a network: dependabot asks each week.
func TestDependenciesAreThoseOfClusterAPI(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	ours, theirs := required(t, filepath.Join("..", "..", "go.mod")), required(t, strings.TrimSpace(string(out)))
	require.Equal(t, ours["sigs.k8s.io/cluster-api"], ours["sigs.k8s.io/cluster-api/api"])
	delete(theirs, "sigs.k8s.io/cluster-api/api") // which they replace by what is beside it
	compared := 0
	for module, version := range theirs {
		switch own, has := ours[module]; {
		case !has:
		case newer[module] != "":
			require.NotEqual(t, version, own, "%s is no newer one any more", module)
		default:
			require.Equal(t, version, own, module)
			compared++
		}
	}
	require.Greater(t, compared, 50)
}
