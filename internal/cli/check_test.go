package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-refit/refit/internal/check"
)

func TestCheck(t *testing.T) {
	f := func() *checkFlags {
		return &checkFlags{managementFlags: connected(management(t)), clock: clocktesting.NewFakePassiveClock(october)}
	}
	out, err := run(t, f().command(), "--workload=false")
	var status *exitStatus
	require.ErrorAs(t, err, &status)
	require.Equal(t, 2, status.code)
	require.Contains(t, out, "ERROR   extension: there is no ExtensionConfig")
	require.Contains(t, out, "\n        → install refit as docs/install.md says\n")
	require.Regexp(t, `\n\d+ errors, \d+ warnings, \d+ OK\n$`, out)

	out, err = run(t, f().command(), "-o", "json", "--problems")
	require.ErrorAs(t, err, &status)
	var all []check.Finding
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.NotEmpty(t, all)
	for _, one := range all {
		require.NotEqual(t, check.Good, one.Level)
	}
	_, err = run(t, f().command(), "-o", "yaml")
	require.ErrorContains(t, err, "--output is")
}
