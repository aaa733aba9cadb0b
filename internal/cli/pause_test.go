package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestPauseAndResume(t *testing.T) {
	c := management(t)
	f := connected(c)
	require.NoError(t, c.Create(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "alone"}}))

	out, err := run(t, pauseCommand(&f), "worker-1", "--reason", "a long job")
	require.NoError(t, err)
	require.Contains(t, out, "Machine fleet/prod-a is paused by alice")
	m := &clusterv1.Machine{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod-a"}, m))
	require.Equal(t, "a long job", m.Annotations["capi-refit.dev/restrictive-until-reason"])

	_, err = run(t, pauseCommand(&f), "prod-a", "nope", "--reason", "another")
	require.ErrorContains(t, err, "there is no Machine")
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod-a"}, m))
	require.Equal(t, "a long job", m.Annotations["capi-refit.dev/restrictive-until-reason"], "nothing was written")

	out, err = run(t, resumeCommand(&f), "prod-a")
	require.NoError(t, err)
	require.Contains(t, out, "Machine fleet/prod-a is resumed")

	f2 := connected(c)
	out, err = run(t, pauseCommand(&f2), "--cluster", "alone", "--reason", "incident", "--until", "2h")
	require.NoError(t, err)
	require.Contains(t, out, "Cluster other/alone is paused by alice until 20")

	f3 := connected(c)
	_, err = run(t, resumeCommand(&f3))
	require.ErrorContains(t, err, "name machines, or a cluster with --cluster")
	_, err = run(t, pauseCommand(&f3), "--cluster", "x")
	require.ErrorContains(t, err, `required flag(s) "reason" not set`)
}
