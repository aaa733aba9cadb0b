package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"
)

// What is resolved here is what Cluster API resolves, for all that its API server takes.
func TestLimitsAreThoseOfClusterAPI(t *testing.T) {
	settings := []intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromInt32(9),
		intstr.FromString("0%"), intstr.FromString("10%"), intstr.FromString("25%"), intstr.FromString("50%"), intstr.FromString("100%"),
	}
	for replicas := range int32(8) {
		for _, surge := range settings {
			for _, unavailable := range settings {
				md := clusterv1.MachineDeployment{}
				md.Spec.Replicas = new(replicas)
				md.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
				md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = new(surge), new(unavailable)
				l := LimitsOf(new(surge), new(unavailable), int(replicas))
				require.Equal(t, int(mdutil.MaxSurge(md)), l.Surge, "%d replicas, surge %s, unavailable %s", replicas, surge.String(), unavailable.String())
				require.Equal(t, int(mdutil.MaxUnavailable(md)), l.Unavailable, "%d replicas, surge %s, unavailable %s", replicas, surge.String(), unavailable.String())
			}
		}
	}
}

func TestLimitsWithoutSettings(t *testing.T) {
	l := LimitsOf(nil, nil, 3)
	require.Equal(t, Limits{Surge: 1}, l)
	require.True(t, l.Surges())
	require.Equal(t, 1, l.InPlace())
	require.Equal(t, 1, l.Replaced())

	broken := intstr.FromString("many")
	require.Equal(t, Limits{Surge: 1}, LimitsOf(&broken, &broken, 3), "what can't be read counts as not set")
	negative := intstr.FromInt32(-2)
	require.Equal(t, Limits{Surge: 1}, LimitsOf(&negative, &negative, 3))
	require.Equal(t, 1, LimitsOf(new(intstr.FromInt32(0)), new(intstr.FromInt32(0)), 3).InPlace())
	require.False(t, LimitsOf(nil, new(intstr.FromInt32(1)), 3).Surges())
}

func TestSettingsOutOfJSON(t *testing.T) {
	for value, want := range map[any]intstr.IntOrString{
		int64(2): intstr.FromInt32(2), float64(2): intstr.FromInt32(2), "25%": intstr.FromString("25%"), "2": intstr.FromInt32(2),
	} {
		require.Equal(t, &want, Setting(value))
	}
	require.Nil(t, Setting(nil))
	require.Nil(t, Setting(true))
	require.True(t, ControlPlaneSurges(nil))
	require.True(t, ControlPlaneSurges(Setting(int64(1))))
	require.False(t, ControlPlaneSurges(Setting(int64(0))))
}
