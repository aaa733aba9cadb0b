package changemanagement

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/schedule"
)

func unreadable(s *metav1.LabelSelector) {
	s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}
}

func TestSelection(t *testing.T) {
	worker := Candidate{
		Subject: inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: labels.Set{"pool": "gpu"}}, Role: refitv1.WorkerRole,
		ClusterLabels: labels.Set{"env": "prod", "region": "eu"},
	}
	controlPlane := worker
	controlPlane.Role, controlPlane.Labels = refitv1.ControlPlaneRole, nil
	for name, tc := range map[string]struct {
		policy               *refitv1.ChangeManagementPolicy
		worker, controlPlane bool
		field                string // that can't be read
	}{
		"nothing said selects all":                  {anytime("a"), true, true, ""},
		"another namespace, never":                  {of("other", anytime("a")), false, false, ""},
		"another namespace, with the labels, never": {of("other", anytime("a", clustersOf(map[string]string{"env": "prod"}))), false, false, ""},
		"clusters by a label":                       {anytime("a", clustersOf(map[string]string{"env": "prod"})), true, true, ""},
		"clusters by all labels":                    {anytime("a", clustersOf(map[string]string{"env": "prod", "region": "us"})), false, false, ""},
		"clusters by an expression": {anytime("a", func(s *spec) {
			s.Selector.Clusters.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"dev"}}}
		}), true, true, ""},
		"machines by a label":                     {anytime("a", machines(map[string]string{"pool": "gpu"})), true, false, ""},
		"machines by the label of their cluster":  {anytime("a", machines(map[string]string{"env": "prod"})), false, false, ""},
		"a role":                                  {anytime("a", roles(refitv1.ControlPlaneRole)), false, true, ""},
		"both roles":                              {anytime("a", roles(refitv1.ControlPlaneRole, refitv1.WorkerRole)), true, true, ""},
		"a role and a label, of which one is not": {anytime("a", roles(refitv1.ControlPlaneRole), machines(map[string]string{"pool": "gpu"})), false, false, ""},
		"clusters that can't be read, all":        {anytime("a", func(s *spec) { unreadable(&s.Selector.Clusters) }), true, true, "selector.clusters: "},
		"machines that can't be read, all":        {anytime("a", func(s *spec) { unreadable(&s.Selector.Machines) }), true, true, "selector.machines: "},
		"what can be read still counts":           {anytime("a", roles(refitv1.ControlPlaneRole), func(s *spec) { unreadable(&s.Selector.Machines) }), false, true, "selector.machines: "},
		"a role that is mistyped, both":           {anytime("a", roles(refitv1.WorkerRole, "Workers")), true, true, "selector.roles: "},
		"not those of another namespace, even so": {of("other", anytime("a", func(s *spec) { unreadable(&s.Selector.Clusters) })), false, false, "selector.clusters: "},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(tc.policy, schedule.NoCalendars)
			require.Equal(t, tc.worker, p.Selects(&worker))
			require.Equal(t, tc.controlPlane, p.Selects(&controlPlane))
			if tc.field == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.field)
			d := Decide(inside, &worker, []*Policy{p}, Change{})
			require.False(t, d.Open)
			require.Equal(t, schedule.InvalidPolicy, d.Reason)
			require.Contains(t, d.Message, tc.field)
		})
	}
}

func TestWhatCannotBeReadIsClosed(t *testing.T) {
	for field, edit := range map[string]edit{
		"strategy: ":          func(s *spec) { s.Strategy = "" },
		"jitter: ":            jitter("soon"),
		"maxOverride: ":       maxOverride("-1h"),
		"budget.minSpacing: ": budget(refitv1.Budget{MinSpacing: "1"}),
		"budget: ":            budget(refitv1.Budget{MaxConcurrent: -1}),
		"whenClosed: ":        func(s *spec) { s.WhenClosed = "Wait" },
		"replacement: ":       func(s *spec) { s.Replacement = "Never" },
		"hold: ":              func(s *spec) { s.Hold = "Some" },
		"expectedDuration: ":  expects("long"),
	} {
		t.Run(field, func(t *testing.T) {
			p, err := Compile(anytime("a", edit), schedule.NoCalendars)
			require.ErrorContains(t, err, field)
			s := &Candidate{Subject: inplace.Subject{Namespace: "fleet"}, Overrides: overrides(map[string]string{bypassKey: "d1"})}
			require.True(t, p.Selects(s))
			d := Decide(inside, s, []*Policy{p}, Change{Digest: "d1"})
			require.False(t, d.Open)
			require.Contains(t, d.Message, "policy a is invalid, and so closed")
			require.Contains(t, d.Message, field)
		})
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	_, err := Compile(anytime("a", jitter("soon"), maxOverride("late"), func(s *spec) { s.Hold = "Some" }), schedule.NoCalendars)
	for _, field := range []string{"jitter: ", "maxOverride: ", "hold: "} {
		require.ErrorContains(t, err, field)
	}
}
