package live

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain"
)

// updates returns the updates in place of a Cluster's Machines that have not ended.
func (c *Cluster) updates(ctx context.Context, namespace, cluster string) (map[string]explain.Update, error) {
	var list refitv1.MachineUpdateList
	if err := c.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil, fmt.Errorf("list the MachineUpdates of Cluster %s/%s: %w", namespace, cluster, err)
	}
	out := map[string]explain.Update{}
	for i := range list.Items {
		s := &list.Items[i].Status
		if ended := s.Phase == refitv1.PhaseSucceeded || s.Phase == refitv1.PhaseFailed; ended && s.ObservedDigest == list.Items[i].Spec.Digest {
			continue
		}
		u := explain.Update{Started: s.Admission != nil || s.ApplyingSince != nil}
		if p := s.Plan; p != nil {
			u.Disruption, u.Actions = disruption.ActionType(p.Disruption), p.Actions
			if !p.Material {
				u.Disruption = disruption.None
			}
		}
		out[list.Items[i].Name] = u
	}
	return out, nil
}
