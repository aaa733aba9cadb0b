package pending

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
)

// addUpgrades adds the Machines that Cluster API has not asked to come to the version of their Cluster's topology. While there are some it says
// that the topology is not reconciled.
func (v *View) addUpgrades(ctx context.Context, s *survey, c *clusterv1.Cluster) error {
	version := c.Spec.Topology.Version
	if version == "" || !c.DeletionTimestamp.IsZero() || apimeta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition) {
		return nil
	}
	var list clusterv1.MachineList
	if err := v.Client.List(ctx, &list, index.InCluster(c.Namespace, c.Name)); err != nil {
		return fmt.Errorf("list the Machines of Cluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if !ofTopology(m) || m.Spec.Version == version || s.told[m.Name] {
			continue
		}
		if e := s.entry(m); e != nil {
			e.cause = refitv1.PendingUpgrade
			if deferred(c, m) {
				e.stop(refitv1.PendingDeferred, "the Cluster's topology has the upgrade of the MachineDeployment wait, by the annotation defer-upgrade or hold-upgrade-sequence")
			}
			s.tell(e)
		}
	}
	return nil
}

// ofTopology reports whether the version of a Machine is that of its Cluster's topology. There may be other workers, which the topology leaves alone.
func ofTopology(m *clusterv1.Machine) bool {
	_, owned := m.Labels[clusterv1.ClusterTopologyOwnedLabel]
	return owned || util.IsControlPlaneMachine(m)
}

// deferred reports whether people have the upgrade of a Machine's MachineDeployment wait, or that of one before it in the topology.
func deferred(c *clusterv1.Cluster, m *clusterv1.Machine) bool {
	name := m.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
	for i := range c.Spec.Topology.Workers.MachineDeployments {
		md := &c.Spec.Topology.Workers.MachineDeployments[i]
		_, alone := md.Metadata.Annotations[clusterv1.ClusterTopologyDeferUpgradeAnnotation]
		_, sequence := md.Metadata.Annotations[clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation]
		if name != "" && (sequence || alone && md.Name == name) {
			return true
		}
		if md.Name == name {
			return false
		}
	}
	return false
}
