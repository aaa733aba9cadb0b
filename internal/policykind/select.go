package policykind

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
)

// clusterPolicies are the policies whose selector of clusters the labels match.
type clusterPolicies[T Policy] struct {
	labels   map[string]string
	policies []T
}

// Selecting returns the policies that select a Machine, or the Machines of a MachineSet, in the order of their names. Any error passes.
func (r *Reader[O, T]) Selecting(ctx context.Context, s inplace.Subject) ([]T, error) {
	if all, err := r.In(s.Namespace); err != nil || len(all) == 0 {
		return nil, err
	}
	var cluster clusterv1.Cluster
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}
	if err := r.client.Get(ctx, key, &cluster); err != nil {
		return nil, fmt.Errorf("which %s select the Machine can't be told: read Cluster %s: %w", r.kind.Plural, key, err)
	}
	return r.SelectingIn(cluster.Labels, selection.RoleOf(s.Labels), s)
}

// SelectingIn is Selecting for a Cluster with the labels, and a Machine with the role.
func (r *Reader[O, T]) SelectingIn(clusterLabels map[string]string, role refitv1.Role, s inplace.Subject) ([]T, error) {
	current := r.current.Load()
	if current == nil {
		return nil, r.Ready()
	}
	var out []T
	for _, p := range current.inCluster(types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}, clusterLabels) {
		if p.Head().Selector.Machine(role, s.Labels) {
			out = append(out, p)
		}
	}
	return out, nil
}

// inCluster returns the policies whose selector of clusters matches. A cluster has many machines, and asks once.
func (c *snapshot[T]) inCluster(key types.NamespacedName, labels map[string]string) []T {
	if known, ok := c.ofCluster.Load(key); ok {
		if k, _ := known.(clusterPolicies[T]); maps.Equal(k.labels, labels) {
			return k.policies
		}
	}
	found := clusterPolicies[T]{labels: labels}
	for _, p := range c.byNamespace[key.Namespace] {
		if p.Head().Selector.Cluster(labels) {
			found.policies = append(found.policies, p)
		}
	}
	c.ofCluster.Store(key, found)
	return found.policies
}
