package nodeaccess

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

func TestMachinesWithoutANodeAccess(t *testing.T) {
	ofSet := func(m *clusterv1.Machine) {
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "ms1", UID: "uid-ms1"}}
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))}
	}
	m1, m2 := managementtest.Machine("fleet", "m1", "c1", ofSet), managementtest.Machine("fleet", "m2", "c1", ofSet, func(m *clusterv1.Machine) { m.Labels["rack"] = "b" })
	access := func(name string, edit func(*refitv1.NodeAccess)) *refitv1.NodeAccess {
		na := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}}
		edit(na)
		return na
	}
	all := func(*refitv1.NodeAccess) {}
	rackB := func(na *refitv1.NodeAccess) { na.Spec.MachineSelector.MatchLabels = map[string]string{"rack": "b"} }
	broken := func(na *refitv1.NodeAccess) {
		na.Spec.MachineSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		set     bool
		of      string
		why     string
		err     string
	}{
		"a NodeAccess for all":                 {objects: []client.Object{access("all", all)}, of: "m1"},
		"none":                                 {of: "m1", why: "no NodeAccess in namespace fleet selects Machine m1, so refit does not know how to reach its node; create one"},
		"one of another namespace":             {objects: []client.Object{&refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "all"}}}, of: "m1", why: "no NodeAccess"},
		"one for others":                       {objects: []client.Object{access("b", rackB)}, of: "m1", why: "selects Machine m1"},
		"one for it, by a label of its own":    {objects: []client.Object{access("b", rackB)}, of: "m2"},
		"a MachineSet of which one has none":   {objects: []client.Object{access("b", rackB)}, of: "ms1", set: true, why: "selects Machine m1"},
		"a MachineSet of which all have one":   {objects: []client.Object{access("all", all)}, of: "ms1", set: true},
		"several, for which an update waits":   {objects: []client.Object{access("all", all), access("b", rackB)}, of: "m2"},
		"one that can't be read, as well":      {objects: []client.Object{access("all", broken)}, of: "m1"},
		"a Machine that is not known yet":      {of: "m9"},
		"a MachineSet that has no Machines":    {of: "ms9", set: true},
		"none any more, after an update":       {objects: []client.Object{managementtest.MachineUpdate(m1)}, of: "m1", err: "Machine m1 was updated in place before"},
		"none any more, of a MachineSet's one": {objects: []client.Object{managementtest.MachineUpdate(m1)}, of: "ms1", set: true, err: "Machine m1 was updated in place before"},
		"none, beside one that was updated":    {objects: []client.Object{managementtest.MachineUpdate(m2)}, of: "ms1", set: true, err: "Machine m2 was updated in place before"},
		"one for those that were updated":      {objects: []client.Object{access("b", rackB), managementtest.MachineUpdate(m2)}, of: "ms1", set: true, err: "Machine m2 was updated in place before"},
	} {
		t.Run(name, func(t *testing.T) {
			c := managementtest.New(append(tc.objects, m1.DeepCopy(), m2.DeepCopy())...)
			why, err := Machines{Client: c}.Without(t.Context(), "fleet", tc.of, tc.set)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			if tc.why == "" {
				require.Empty(t, why)
			}
			require.Contains(t, why, tc.why)
		})
	}
}

// TestACacheThatFailsIsNoAnswer: what can't be read is not "none".
func TestACacheThatFailsIsNoAnswer(t *testing.T) {
	c := interceptor.NewClient(managementtest.New(managementtest.Machine("fleet", "m1", "c1")), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not filled")
		},
	})
	why, err := Machines{Client: c}.Without(t.Context(), "fleet", "m1", false)
	require.ErrorContains(t, err, "not filled")
	require.Empty(t, why)
	_, err = Machines{Client: c}.Without(t.Context(), "fleet", "ms1", true)
	require.ErrorContains(t, err, "not filled")
}
