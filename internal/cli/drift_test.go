package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// documentedDrift is what the page shows an example of.
func documentedDrift(mu *refitv1.MachineUpdate, message string) {
	at := metav1.NewTime(october.Add(-2 * time.Minute))
	mu.Status.Phase = refitv1.PhaseSucceeded
	mu.Status.Drift = &refitv1.DriftStatus{CheckedAt: &at, ComparedAt: &at, Total: 2, Resources: []refitv1.DriftedResource{
		{Kind: "File", Name: "/etc/motd", What: []string{"content", "mode"}}, {Kind: "Unit", Name: "chrony.service", What: []string{"active"}},
	}}
	mu.Status.Conditions = []metav1.Condition{{Type: refitv1.DriftedCondition, Status: metav1.ConditionTrue, Reason: refitv1.DriftFound, Message: message}}
}

func TestDrift(t *testing.T) {
	page := readPage(t, filepath.Join(docsDir, "drift.md"))
	message := regexp.MustCompile(`(?m)^Changed: (.*)$`).FindStringSubmatch(page)
	require.NotNil(t, message)
	c := management(t)
	var mu refitv1.MachineUpdate
	key := types.NamespacedName{Namespace: "fleet", Name: "prod-a"}
	require.NoError(t, c.Get(t.Context(), key, &mu))
	documentedDrift(&mu, message[1])
	require.NoError(t, c.Status().Update(t.Context(), &mu))
	flags := func() *showDriftFlags {
		return &showDriftFlags{managementFlags: connected(c), clock: clocktesting.NewFakeClock(october)}
	}
	out, err := run(t, flags().command(), "worker-1", "-n", "fleet")
	require.NoError(t, err)
	require.Contains(t, page, "$ refit drift worker-17\n"+strings.ReplaceAll(out, "prod-a", "prod-x7k2p")+"```", "the page shows what the command does")

	out, err = run(t, flags().command(), "prod-a", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"name": "/etc/motd"`)
	for args, says := range map[string]string{
		"":                         "accepts 1 arg(s)",
		"nope":                     "there is no Machine",
		"prod-a -o xml":            `--output is "xml"`,
		"prod-a --now --timeout 0": "--timeout must be longer",
	} {
		_, err := run(t, flags().command(), strings.Fields(args)...)
		require.ErrorContains(t, err, says, args)
	}
}

// TestDriftIsDocumented reads reasons and metrics where they are declared.
func TestDriftIsDocumented(t *testing.T) {
	page := readPage(t, filepath.Join(docsDir, "drift.md"))
	types := readPage(t, filepath.Join("..", "..", "api", "v1alpha1", "machineupdate_drift.go"))
	reasons := regexp.MustCompile(`(?m)^\tDrift\w+ += "(\w+)"$`).FindAllStringSubmatch(types, -1)
	require.NotEmpty(t, reasons)
	for _, m := range reasons {
		require.Regexp(t, `(?m)^\| (True|False|Unknown) \| `+m[1]+` \|`, page)
	}
	metric := regexp.MustCompile(`refit_drift[a-z_]*[a-z]`)
	names := func(text string) []string {
		all := metric.FindAllString(text, -1)
		slices.Sort(all)
		return slices.Compact(all)
	}
	source := filepath.Join("..", "..", "internal")
	require.Equal(t, names(readPage(t, filepath.Join(source, "machineupdate", "collector.go"))+readPage(t, filepath.Join(source, "drift", "metrics.go"))), names(page))
}
