package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverlaysAddUp: who follows one page after the other, and the first one once more, has the settings of all of them.
func TestOverlaysAddUp(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join("..", "..", "config"))))
	var scripts []string
	for _, name := range pages(t) {
		for _, b := range codeBlocks(t, readPage(t, name)) {
			if b.language == "sh" && strings.Contains(b.text, "overlay/") {
				scripts = append(scripts, regexp.MustCompile(`(?m)^kubectl .*$`).ReplaceAllString(b.text, ""))
			}
		}
	}
	require.GreaterOrEqual(t, len(scripts), 3)
	for _, script := range append(scripts, scripts[0]) {
		cmd := exec.Command("sh", "-e", "-c", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	overlay := readPage(t, filepath.Join(dir, "overlay", "kustomization.yaml"))
	for _, component := range []string{"managers", "../config/components/mtls", "audit-volume"} {
		require.Equal(t, 1, strings.Count(overlay, "\n  - "+component+"\n"), overlay)
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return // the components are listed; what they do is seen where there is kubectl
	}
	out, err := exec.Command(kubectl, "kustomize", filepath.Join(dir, "overlay")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, setting := range []string{"my-control-plane-system", "--client-ca-file", "subPathExpr"} {
		require.Contains(t, string(out), setting)
	}
}
