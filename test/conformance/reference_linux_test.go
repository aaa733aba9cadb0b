//go:build e2e

package conformance_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/conformance"
	"github.com/capi-refit/refit/test/system"
)

// TestReferenceExtension: it breaks the laws that docs/conformance.md says it does, and no others.
func TestReferenceExtension(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	r := startReference(ctx, t)
	client, err := conformance.NewClient(r.Bundle, nil, "")
	require.NoError(t, err)
	s := &conformance.Suite{Client: client, URL: &url.URL{Scheme: "https", Host: r.Host}, UpdateMachine: true}
	report := untilItAnswers(ctx, t, s, r)
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

func startReference(ctx context.Context, t *testing.T) *system.Reference {
	t.Helper()
	r, err := system.StartReference(ctx, t.TempDir(), os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// untilItAnswers waits until the extension serves, and returns what was found about it.
func untilItAnswers(ctx context.Context, t *testing.T, s *conformance.Suite, p *system.Reference) *conformance.Report {
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
