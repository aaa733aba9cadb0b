package attack_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type workflow struct {
	On          map[string]any `json:"true"` // which is what YAML 1.1 takes "on" for
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []struct{ Uses, Run string }
	}
}

// jobOf is a job of a workflow.
type jobOf struct{ file, name string }

// publishes are the jobs that may write, and what: the one that publishes a release, its image and their signatures.
var publishes = map[jobOf]map[string]string{
	{"release.yaml", "release"}: {"contents": "write", "packages": "write", "id-token": "write"},
}

// TestAWorkflowRunsNoActionThatCanBeExchanged: a tag of somebody else's repository can be moved to other code.
func TestAWorkflowRunsNoActionThatCanBeExchanged(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", ".github", "workflows", "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	runs := map[string][]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(content, &w), file)
		require.NotNil(t, w.Permissions, "%s: without it jobs may have all", file)
		require.Empty(t, w.Permissions, "%s: each job says what it needs", file)
		for name, job := range w.Jobs {
			for what, access := range job.Permissions {
				require.True(t, access == "read" || publishes[jobOf{filepath.Base(file), name}][what] == access, "%s: %s may %s %s", file, name, access, what)
			}
			if len(publishes[jobOf{filepath.Base(file), name}]) > 0 {
				require.Equal(t, map[string]any{"push": map[string]any{"tags": []any{"v*"}}}, w.On, "%s: it publishes what a maintainer has tagged, and nothing else", file)
			}
			require.NotEmpty(t, job.Permissions)
			for _, step := range job.Steps {
				if step.Uses != "" {
					require.Regexp(t, regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`), step.Uses)
				}
				require.NotContains(t, step.Run, "${{", "%s: what others have written must not become a command", file)
				runs[filepath.Base(file)] = append(runs[filepath.Base(file)], step.Run)
			}
		}
	}
	for file, commands := range map[string][]string{"ci.yaml": {".ci/run", "make vulnerabilities"}, "release.yaml": {"make vulnerabilities", "make image sbom", "make sign"}} {
		for _, command := range commands {
			require.Contains(t, runs[file], command)
		}
	}
}

// TestAReleaseRunsTheCommandsThatThereAre compares what the workflow of a release calls with the Makefile, and in which order: all files are made before
// their checksums are signed, and signed before they are published.
func TestAReleaseRunsTheCommandsThatThereAre(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "release.yaml"))
	require.NoError(t, err)
	var w workflow
	require.NoError(t, yaml.Unmarshal(content, &w))
	var order []string
	for _, step := range w.Jobs["release"].Steps {
		for _, m := range regexp.MustCompile(`\b(make|gh) ([a-z -]+)`).FindAllStringSubmatch(step.Run, -1) {
			if m[1] == "gh" {
				order = append(order, "publish")
				continue
			}
			for _, target := range strings.Fields(m[2]) {
				require.Regexp(t, `(?m)^`+target+`:`, string(makefile), "make %s", target)
				order = append(order, target)
			}
		}
	}
	require.Equal(t, []string{"vulnerabilities", "image", "sbom", "release", "provenance", "sign-image", "sign", "publish"}, order)
	require.Contains(t, string(content), "gh release create \"$GITHUB_REF_NAME\" --draft ", "a person publishes it")
	for _, signed := range []string{"cosign sign-blob --yes --bundle out/checksums.txt.sigstore.json out/checksums.txt", `cosign sign --yes "$$image"`} {
		require.Contains(t, string(makefile), signed)
	}
}
