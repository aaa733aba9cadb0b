package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

// bad are the findings that say that something is wrong.
func bad(all []Finding) (out []Finding) {
	for _, one := range all {
		if one.Level != Good {
			out = append(out, one)
		}
	}
	return out
}

// gatesAre has the manager of control planes be started with arguments.
func gatesAre(args ...string) func(*testing.T, *fleet) {
	return func(_ *testing.T, f *fleet) { f.kcpm.Spec.Template.Spec.Containers[0].Args = args }
}

// TestNoFalseAlarm has installations in which all is well, though not as in most.
func TestNoFalseAlarm(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *fleet){
		"there were three shards, and there is one leader now": func(_ *testing.T, f *fleet) {
			old := f.lease.DeepCopy()
			old.Name, old.Labels = "refit-shard-1-of-3", map[string]string{"capi-refit.dev/shards": "3"}
			old.Spec.HolderIdentity, old.Spec.RenewTime = new(""), new(metav1.NewMicroTime(managementtest.Start.Add(-48*time.Hour)))
			f.more = append(f.more, old)
		},
		"two extensions for namespaces of their own": func(_ *testing.T, f *fleet) {
			f.namespace.Labels = map[string]string{"in-place": "refit"}
			f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"in-place": "refit"}}
			other := f.extension.DeepCopy()
			other.Name = "vendor"
			other.Spec.NamespaceSelector.MatchLabels["in-place"] = "vendor"
			f.more = append(f.more, other, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"in-place": "vendor"}}},
				&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: "other"}})
		},
		"a gate in two arguments":   gatesAre("--feature-gates", "InPlaceUpdates=true"),
		"a gate that is 1":          gatesAre("--feature-gates=InPlaceUpdates=1"),
		"all gates of an alpha":     gatesAre("--feature-gates=AllAlpha=true"),
		"gates in two flags":        gatesAre("--feature-gates=InPlaceUpdates=T", "--feature-gates=ClusterTopology=true"),
		"a gate of another version": gatesAre("--feature-gates=Unheard=true,InPlaceUpdates=true"),
		"another kind of control plane": func(_ *testing.T, f *fleet) {
			f.kcpm.SetName("")
			f.kcp.SetName("")
			f.cluster.Spec.ControlPlaneRef.Kind = "K0smotronControlPlane"
		},
		"a Machine of a MachinePool without NodeAccess": func(_ *testing.T, f *fleet) {
			f.access.Spec.MachineSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: clusterv1.MachinePoolNameLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}}
			m := managementtest.Machine("fleet", "pool-0", "prod")
			m.Labels[clusterv1.MachinePoolNameLabel] = "pool"
			f.more = append(f.more, m)
		},
		"authorities of a week": func(t *testing.T, f *fleet) {
			week := authorityOf(t, managementtest.Start.Add(3*24*time.Hour), 7*24*time.Hour)
			f.extension.Spec.ClientConfig.CABundle, f.asks.Webhooks[0].ClientConfig.CABundle, f.guard.Webhooks[0].ClientConfig.CABundle = week, week, week
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			change(t, f)
			require.Empty(t, bad(f.run()))
		})
	}
}
