package attack_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []struct{ Uses, Run string }
	}
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
				require.True(t, access == "read" || what == "packages", "%s: %s may %s %s", file, name, access, what)
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
	for file, commands := range map[string][]string{"ci.yaml": {".ci/run", "make vulnerabilities"}, "release.yaml": {"make vulnerabilities", "make image sbom"}} {
		for _, command := range commands {
			require.Contains(t, runs[file], command)
		}
	}
}
