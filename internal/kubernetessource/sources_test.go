package kubernetessource

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

var controlPlane = inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}

func TestUnreadSourcesAreNotNoSources(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), source("a"))
	w.sources = New(w)
	require.ErrorContains(t, w.sources.Ready(), "the KubernetesSources have not been read yet")
	_, err := w.sources.For(t.Context(), worker)
	require.ErrorContains(t, err, "not been read yet")
	require.NoError(t, w.sources.Prime(t.Context()))
	require.NoError(t, w.sources.Ready())
	require.Equal(t, "a", w.selected(worker))
}

func TestWhichSourceCounts(t *testing.T) {
	other := source("of-others")
	other.Namespace = "other"
	w := newWorld(t, cluster("c1", map[string]string{"env": "prod"}), cluster("c2", nil), other,
		source("of-prod", clusters(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole)),
		source("of-control-planes", roles(refitv1.ControlPlaneRole), inWindow),
		source("of-pool", func(s *spec) { s.Selector.Machines.MatchLabels = map[string]string{"pool": "gpu"} }))
	for name, tc := range map[string]struct {
		of   inplace.Subject
		want string
	}{
		"a worker":                        {worker, "of-prod"},
		"a control plane":                 {controlPlane, "of-control-planes"},
		"by a label of the machine":       {inplace.Subject{Namespace: "fleet", Cluster: "c2", Labels: map[string]string{"pool": "gpu"}}, "of-pool"},
		"one that none selects":           {inplace.Subject{Namespace: "fleet", Cluster: "c2"}, ""},
		"a namespace without any sources": {inplace.Subject{Namespace: "none", Cluster: "c1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, w.selected(tc.of))
		})
	}
	m, err := w.sources.Machine(t.Context(), machine("m", "c2", policykindtest.Label("pool", "gpu")))
	require.NoError(t, err)
	require.Equal(t, "of-pool", m.Name)
	require.True(t, m.Early)
	m, err = w.sources.For(t.Context(), controlPlane)
	require.NoError(t, err)
	require.False(t, m.Early)
}

func TestAnErrorIsNeverANo(t *testing.T) {
	for name, tc := range map[string]struct {
		world *world
		down  bool
		want  string
	}{
		"a cluster that can't be found": {newWorld(t, source("a")), false, "read Cluster fleet/c1"},
		"a cluster that can't be read":  {newWorld(t, cluster("c1", nil), source("a")), true, policykindtest.ErrDown.Error()},
		"two sources":                   {newWorld(t, cluster("c1", nil), source("b"), source("a")), false, "the KubernetesSources a, b select the same machine"},
		"one of two that can't be read": {newWorld(t, cluster("c1", nil), source("b", unreadable), source("a")), false, "the KubernetesSources a, b select"},
		"a source that can't be read":   {newWorld(t, cluster("c1", nil), source("a", unreadable)), false, `KubernetesSource a can't be read, so it is not known where versions come from: packages.manager: "zypper" is not known`},
		"a selector that can't be read": {newWorld(t, cluster("c1", nil), source("a", func(s *spec) {
			s.Selector.Machines.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Near"}}
		})), false, "selector.machines"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.world.Down = tc.down
			selected, err := tc.world.sources.For(t.Context(), worker)
			require.ErrorContains(t, err, tc.want)
			require.Nil(t, selected)
		})
	}
}

func TestWhoMustCorrectSourcesCanBeAsked(t *testing.T) {
	var invalid *InvalidError
	_, err := newWorld(t, cluster("c1", nil), source("a", unreadable)).sources.For(t.Context(), worker)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "a", invalid.Source)
	var ambiguous *AmbiguousError
	_, err = newWorld(t, cluster("c1", nil), source("a"), source("b")).sources.For(t.Context(), worker)
	require.ErrorAs(t, err, &ambiguous)
	require.Equal(t, []string{"a", "b"}, ambiguous.Sources)
}

func TestASourceThatCanNotBeReadIsForThoseItSelects(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), source("a", unreadable, roles(refitv1.WorkerRole)), source("b", roles(refitv1.ControlPlaneRole)))
	require.Equal(t, "b", w.selected(controlPlane))
}

func TestSourcesAreReadAgain(t *testing.T) {
	w := newWorld(t, cluster("c1", nil), source("a", named("v1.36.3")))
	before, err := w.sources.For(t.Context(), worker)
	require.NoError(t, err)
	w.Change("a", named("v1.36.4"))
	w.Reread("a")
	after, err := w.sources.For(t.Context(), worker)
	require.NoError(t, err)
	_, err = after.For("v1.36.4")
	require.NoError(t, err)
	_, err = before.For("v1.36.4")
	require.ErrorContains(t, err, "KubernetesSource a does not have v1.36.4; it has v1.36.3;", "what somebody has does not change")

	require.NoError(t, w.Delete(t.Context(), w.Policy("a")))
	w.Reread("a")
	require.Empty(t, w.selected(worker))
}
