package vulnerabilities

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// govulncheck builds the pinned one.
func govulncheck(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "govulncheck")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "golang.org/x/vuln/cmd/govulncheck")
	build.Dir = filepath.Join("..", "..", "tools", "govulncheck")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestVulnerabilitiesAndNoAnswerAreToldApart has a program that calls what a recorded database says is vulnerable.
func TestVulnerabilitiesAndNoAnswerAreToldApart(t *testing.T) {
	program := govulncheck(t)
	script, err := filepath.Abs(filepath.Join("..", "..", ".ci", "vulnerabilities"))
	require.NoError(t, err)
	testdata, err := filepath.Abs("testdata")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		database, packages string
		status             int
		says               string
	}{
		"a database that knows of one":       {"file://" + testdata + "/database", "./...", 3, "VULNERABLE: see above"},
		"a database that knows of none":      {"file://" + testdata + "/empty", "./...", 0, "No known vulnerability, by file://"},
		"a database that does not answer":    {"http://127.0.0.1:1", "./...", 4, "NOT CHECKED: the database of vulnerabilities, http://127.0.0.1:1, did not answer"},
		"a database that is not there":       {"file://" + testdata + "/none", "./...", 4, "NOT CHECKED: the database"},
		"a package that can't be looked at":  {"file://" + testdata + "/empty", "./none", 4, "NOT CHECKED: govulncheck failed with status 1"},
		"a package, and a database away too": {"http://127.0.0.1:1", "./none", 4, "NOT CHECKED"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), script, program, tc.packages)
			cmd.Dir = filepath.Join(testdata, "vulnerable")
			cmd.Env = append(os.Environ(), "VULNDB="+tc.database, "GOFLAGS=", "GOWORK=off")
			out, err := cmd.CombinedOutput()
			status := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status = exit.ExitCode()
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.status, status, "%s", out)
			require.Contains(t, string(out), tc.says)
		})
	}
}
