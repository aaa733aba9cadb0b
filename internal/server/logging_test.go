package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogsInJSON runs the command in a process of its own: the format is set once for all of it.
func TestLogsInJSON(t *testing.T) {
	if args := os.Getenv("REFIT_TEST_LOGGING"); args != "" {
		cmd := NewCommand("v0")
		cmd.SetArgs([]string{"--logging-format=" + args, "--kubeconfig=" + filepath.Join(t.TempDir(), "none")})
		t.Log(cmd.ExecuteContext(t.Context()))
		return
	}
	said := func(format string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLogsInJSON$", "-test.v")
		cmd.Env = append(os.Environ(), "REFIT_TEST_LOGGING="+format)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	for _, format := range []string{"json", "text"} {
		out := said(format)
		require.Contains(t, out, "none", "it gets as far as to the kubeconfig")
		require.NotContains(t, out, "format: Invalid value")
	}
	require.Contains(t, said("yaml"), "format: Invalid value")
}
