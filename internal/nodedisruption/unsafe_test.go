package nodedisruption

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

// TestAPolicyTakesNoCheckAway: one could have sshd's configuration take nothing, and nothing tested it.
func TestAPolicyTakesNoCheckAway(t *testing.T) {
	weak := []edit{
		file("/etc/ssh/sshd_config.d", act(refitv1.NoDisruption)),
		func(s *spec) {
			s.Units = []refitv1.UnitDisruption{{Name: "a.service", Disruption: takes(act(refitv1.NoDisruption))}}
			d := takes(act(refitv1.DrainDisruption))
			s.KubeletArguments = &d
		},
		file("/etc/app", act(refitv1.NoDisruption)),
	}
	refused := Compile(policy("weak", weak...))
	require.Error(t, refused.Err)
	for _, text := range []string{
		"files[/etc/ssh/sshd_config.d].actions: it leaves out Reload ssh.service",
		"units[a.service].actions: it leaves out Restart the unit",
		"kubeletArguments.actions: it leaves out Restart kubelet.service",
	} {
		require.ErrorContains(t, refused.Err, text)
	}
	require.NotContains(t, refused.Err.Error(), "/etc/app")

	allowed := Compile(policy("weak", append(weak, func(s *spec) {
		s.Files[0].Unsafe, s.Units[0].Unsafe, s.KubeletArguments.Unsafe = true, true, true
	})...))
	require.NoError(t, allowed.Err)
	e := Join(disruption.BuiltinRules(), allowed)
	require.Len(t, e.Unsafe, 3)
	require.Contains(t, e.Unsafe[0], "NodeDisruptionPolicy weak says unsafe: true of files[/etc/ssh/sshd_config.d]")
	actions, err := e.Rules.Actions("/etc/ssh/sshd_config.d/a.conf")
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, actions)
	require.True(t, e.Rules.Unsafe("/etc/ssh/sshd_config.d/a.conf"), "the node is told, too")
	require.False(t, e.Rules.Unsafe("/etc/sysctl.d/a"))
}

func TestUnsafeEntriesAreCounted(t *testing.T) {
	p := newWorld(t, policy("safe"), policy("weak", file("/etc/motd", act(refitv1.NoDisruption)), func(s *spec) { s.Files[0].Unsafe = true })).policies
	require.NoError(t, testutil.CollectAndCompare(p.UnsafeCollector(), strings.NewReader(`
# HELP refit_node_disruption_policy_unsafe_entries How many entries of the NodeDisruptionPolicy say unsafe: true, and may leave out what brings changes into effect, or tests them.
# TYPE refit_node_disruption_policy_unsafe_entries gauge
refit_node_disruption_policy_unsafe_entries{namespace="fleet",policy="safe"} 0
refit_node_disruption_policy_unsafe_entries{namespace="fleet",policy="weak"} 1
`)))
}
