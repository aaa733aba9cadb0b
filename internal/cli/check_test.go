package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/capi-refit/refit/internal/check"
	"github.com/capi-refit/refit/internal/managementtest"
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
	_, err = run(t, f().command(), "-o", "xml")
	require.ErrorContains(t, err, "--output is")
}

// TestWhatCheckCouldNotLookAtIsNoWarning: a pipeline that lets warnings pass is not to let a typo pass.
func TestWhatCheckCouldNotLookAtIsNoWarning(t *testing.T) {
	for _, args := range [][]string{{"--output", "xml"}, {"--problem"}, {"--nodes", "all"}, {"fleet"}, {"--cluster", "a", "--cluster", "b"}, {"--context", "not there"}} {
		f := &checkFlags{clock: clocktesting.NewFakePassiveClock(october)}
		cmd := f.command()
		takeOnce(cmd)
		_, err := run(t, cmd, args...)
		var status *exitStatus
		require.ErrorAs(t, err, &status, "%v", args)
		require.Equal(t, 3, status.code, "%v", args)
		require.Error(t, status.err, "%v", args)
	}
}

// TestCheckNamesNoFlagThatItLacks: a Cluster that is still being made has no kubeconfig.
func TestCheckNamesNoFlagThatItLacks(t *testing.T) {
	prod := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}
	c := managementtest.NewOf([]func(*runtime.Scheme) error{controlplanev1.AddToScheme, runtimev1.AddToScheme}, prod)
	cmd := (&checkFlags{managementFlags: connected(c), clock: clocktesting.NewFakePassiveClock(october)}).command()
	require.Nil(t, cmd.Flags().Lookup("workload-kubeconfig"))
	out, _ := run(t, cmd)
	require.Contains(t, out, "WARNING workload, Cluster fleet/prod: there is no kubeconfig")
	require.NotContains(t, out, "--workload-kubeconfig")
}
