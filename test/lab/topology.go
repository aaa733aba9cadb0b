package lab

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// topologyManifest is the template of a cluster with a managed topology.
const topologyManifest = "clusterclass.yaml"

// SetVersion asks for another version of Kubernetes in the cluster's topology, and returns at once. Cluster API refuses a
// lower version, and any other one until all hooks of the upgrade before have let go. Only ClusterOptions.Topology makes
// clusters that have a topology.
func (c *Cluster) SetVersion(ctx context.Context, version string) error {
	cluster, err := c.get(ctx)
	if err != nil {
		return err
	}
	if !cluster.Spec.Topology.IsDefined() {
		return fmt.Errorf("setting the version of %s: it has no topology", c)
	}
	changed := cluster.DeepCopy()
	changed.Spec.Topology.Version = version
	if err := c.lab.Client.Patch(ctx, changed, client.MergeFrom(cluster)); err != nil {
		return fmt.Errorf("setting the version of %s: %w", c, err)
	}
	return nil
}

// findParts waits for the KubeadmControlPlane and the MachineDeployment, which a topology makes and names by itself.
func (c *Cluster) findParts(ctx context.Context) error {
	missing := ""
	err := c.lab.poll(ctx, func(ctx context.Context) (bool, error) {
		cluster, err := c.get(ctx)
		if err != nil {
			return false, err
		}
		var deployments clusterv1.MachineDeploymentList
		ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}
		if err := c.lab.Client.List(ctx, &deployments, client.InNamespace(c.Namespace), ofCluster); err != nil {
			return false, fmt.Errorf("listing the MachineDeployments of %s: %w", c, err)
		}
		if !cluster.Spec.ControlPlaneRef.IsDefined() || len(deployments.Items) == 0 {
			missing = missingTopology(cluster)
			return false, nil
		}
		c.controlPlane, c.workers = cluster.Spec.ControlPlaneRef.Name, deployments.Items[0].Name
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the control plane and the workers of %s (%s): %w", c, missing, err)
	}
	return nil
}

func (c *Cluster) missingTopology(ctx context.Context) (string, error) {
	cluster, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return missingTopology(cluster), nil
}

// missingTopology returns what keeps the control plane and the workers from being told all that cluster's topology says, or
// nothing. Without a topology they are told directly.
func missingTopology(cluster *clusterv1.Cluster) string {
	if !cluster.Spec.Topology.IsDefined() {
		return ""
	}
	reconciled := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	switch {
	case reconciled == nil || reconciled.ObservedGeneration < cluster.Generation:
		return "the topology's change is not seen yet"
	case reconciled.Status != metav1.ConditionTrue:
		return reconciled.Message
	}
	return ""
}

func (c *Cluster) get(ctx context.Context) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	if err := c.lab.Client.Get(ctx, c.ObjectKey, cluster); err != nil {
		return nil, fmt.Errorf("reading %s: %w", c, err)
	}
	return cluster, nil
}
