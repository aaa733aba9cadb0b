//go:build e2e

package conformance_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/conformance"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
	"github.com/capi-refit/refit/webhook"
)

// nowhere is a kubeconfig of an API server that is not there: the hooks for updates in place don't ask it.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
`

// TestReferenceExtension: it breaks the laws that docs/conformance.md says it does, and no others.
func TestReferenceExtension(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	s, p, _ := startReference(ctx, t)
	report := untilItAnswers(ctx, t, s, p)
	for _, f := range report.Findings {
		t.Logf("%s: %s: %s", f.Name, f.Result, strings.Join(append(f.Evidence, f.Reason), "\n    "))
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Cluster API's reference extension\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^- `([a-z-]+)`:").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	require.ElementsMatch(t, documented, report.Broken())
}

// startReference starts it, and returns by which certificate it is known.
func startReference(ctx context.Context, t *testing.T) (s *conformance.Suite, p *process.Process, bundle []byte) {
	t.Helper()
	programs, err := lab.Build(ctx, os.Stderr, lab.ReferenceExtension)
	require.NoError(t, err)
	dir := t.TempDir()
	bundle, err = webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	ports, err := lab.FreePorts(3)
	require.NoError(t, err)
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	launcher := process.NewLauncher()
	t.Cleanup(launcher.Close)
	p, err = launcher.Start("reference extension", filepath.Join(dir, "log"), programs[lab.ReferenceExtension], []string{
		"--kubeconfig=" + kubeconfig, "--webhook-port=" + strconv.Itoa(ports[0]), "--webhook-cert-dir=" + dir,
		"--health-addr=" + at(ports[1]), "--diagnostics-address=" + at(ports[2]), "--insecure-diagnostics",
	}, os.Environ())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(time.Minute)) })
	client, err := conformance.NewClient(bundle, nil, "")
	require.NoError(t, err)
	return &conformance.Suite{Client: client, URL: &url.URL{Scheme: "https", Host: at(ports[0])}, UpdateMachine: true}, p, bundle
}

// untilItAnswers waits until the extension serves, and returns what was found about it.
func untilItAnswers(ctx context.Context, t *testing.T, s *conformance.Suite, p *process.Process) *conformance.Report {
	t.Helper()
	for {
		report, err := s.Run(ctx)
		if err == nil {
			return report
		}
		select {
		case <-p.Done():
			require.NoError(t, p.Died())
		case <-ctx.Done():
			require.NoError(t, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
