package selection

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// selector is one that selects by what is not nil.
func selector(clusters, machines map[string]string, roles ...refitv1.Role) refitv1.MachinesSelector {
	return refitv1.MachinesSelector{
		Clusters: metav1.LabelSelector{MatchLabels: clusters}, Machines: metav1.LabelSelector{MatchLabels: machines}, Roles: roles,
	}
}

func unreadable(s *metav1.LabelSelector) {
	s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}
}

func TestRead(t *testing.T) {
	cluster, worker := labels.Set{"env": "prod"}, labels.Set{"pool": "gpu"}
	edited := func(s refitv1.MachinesSelector, edit func(*refitv1.MachinesSelector)) refitv1.MachinesSelector {
		edit(&s)
		return s
	}
	for name, tc := range map[string]struct {
		of                            refitv1.MachinesSelector
		any, cluster, worker, control bool
		field                         string // that can't be read
	}{
		"nothing said selects all": {selector(nil, nil), true, true, true, true, ""},
		"a cluster by a label":     {selector(map[string]string{"env": "prod"}, nil), false, true, true, true, ""},
		"another cluster":          {selector(map[string]string{"env": "dev"}, nil), false, false, true, true, ""},
		"a machine by a label":     {selector(nil, map[string]string{"pool": "gpu"}), true, true, true, false, ""},
		"a role":                   {selector(nil, nil, refitv1.ControlPlaneRole), true, true, false, true, ""},
		"clusters that can't be read, all": {
			edited(selector(nil, nil), func(s *refitv1.MachinesSelector) { unreadable(&s.Clusters) }), true, true, true, true, "selector.clusters: ",
		},
		"machines that can't be read, all": {
			edited(selector(nil, nil), func(s *refitv1.MachinesSelector) { unreadable(&s.Machines) }), true, true, true, true, "selector.machines: ",
		},
		"a role that is mistyped, both": {selector(nil, nil, refitv1.WorkerRole, "Master"), true, true, true, true, "selector.roles: "},
		"what can be read still counts": {
			edited(selector(nil, nil, refitv1.ControlPlaneRole), func(s *refitv1.MachinesSelector) { unreadable(&s.Machines) }),
			true, true, false, true, "selector.machines: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read(tc.of)
			if tc.field == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.field)
			}
			require.Equal(t, tc.any, s.AnyCluster())
			require.Equal(t, tc.cluster, s.Cluster(cluster))
			require.Equal(t, tc.worker, s.Machine(refitv1.WorkerRole, worker))
			require.Equal(t, tc.control, s.Machine(refitv1.ControlPlaneRole, nil))
		})
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	wrong := selector(nil, nil, "Master")
	unreadable(&wrong.Clusters)
	unreadable(&wrong.Machines)
	_, err := Read(wrong)
	for _, field := range []string{"selector.clusters: ", "selector.machines: ", "selector.roles: "} {
		require.ErrorContains(t, err, field)
	}
}

func TestCanMeet(t *testing.T) {
	env := func(v string) map[string]string { return map[string]string{"env": v} }
	for name, tc := range map[string]struct {
		a, b refitv1.MachinesSelector
		meet bool
	}{
		"all and all":               {selector(nil, nil), selector(nil, nil), true},
		"all and some":              {selector(nil, nil), selector(env("prod"), nil, refitv1.WorkerRole), true},
		"two values of one label":   {selector(env("prod"), nil), selector(env("dev"), nil), false},
		"the same, of machines":     {selector(nil, env("prod")), selector(nil, env("dev")), false},
		"of a cluster, of machines": {selector(env("prod"), nil), selector(nil, env("dev")), true},
		"two roles":                 {selector(nil, nil, refitv1.WorkerRole), selector(nil, nil, refitv1.ControlPlaneRole), false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Read(tc.a)
			require.NoError(t, err)
			b, err := Read(tc.b)
			require.NoError(t, err)
			require.Equal(t, tc.meet, a.CanMeet(b))
			require.Equal(t, tc.meet, b.CanMeet(a))
		})
	}
}

func TestRoleOf(t *testing.T) {
	require.Equal(t, refitv1.ControlPlaneRole, RoleOf(map[string]string{clusterv1.MachineControlPlaneLabel: ""}))
	require.Equal(t, refitv1.WorkerRole, RoleOf(nil))
}
