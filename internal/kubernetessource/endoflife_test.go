package kubernetessource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestEndOfLife(t *testing.T) {
	ends := func(s *spec) {
		s.EndOfLife = []refitv1.MinorEnd{{Minor: "v1.34", Date: "2026-10-27"}, {Minor: "v1.35", Date: "2027-02-28"}}
	}
	w := newWorld(t, cluster("c1", nil), source("a", ends))
	runs := func(version string) *clusterv1.Machine {
		return machine("m", "c1", func(m *clusterv1.Machine) { m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version} })
	}
	for version, want := range map[string]string{
		"v1.34.7": "2026-10-27", "v1.35.0": "2027-02-28", "v1.35.2-eks-1a2b": "2027-02-28", "v1.36.0": "", "v1.3.4": "", "": "", "latest": "",
	} {
		end, err := w.sources.EndOfLife(t.Context(), runs(version))
		require.NoError(t, err)
		got := ""
		if !end.IsZero() {
			got = end.Format(time.DateOnly)
		}
		require.Equal(t, want, got, version)
	}
	end, err := w.sources.EndOfLife(t.Context(), machine("m", "c1"))
	require.NoError(t, err)
	require.Zero(t, end, "a Machine without a Node")

	source := Compile(source("a", func(s *spec) { s.EndOfLife = []refitv1.MinorEnd{{Minor: "v1.34", Date: "2026-02-30"}} }))
	require.ErrorContains(t, source.Err, `endOfLife[v1.34].date: "2026-02-30" is not a date`)
}
