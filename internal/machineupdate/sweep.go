package machineupdate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// sweep releases the leases in the update's cluster that an earlier process has left behind on nodes where nothing is under
// way. It does so once for each cluster, before this process acquires the first lease there: none of its own can be among them.
func (u *update) sweep(ctx context.Context) error {
	key := types.NamespacedName{Namespace: u.mu.Namespace, Name: u.mu.Labels[clusterv1.ClusterNameLabel]}
	u.sweeping.Lock()
	defer u.sweeping.Unlock()
	if u.swept[key] {
		return nil
	}
	idle, err := u.idle(ctx, key)
	if err != nil {
		return err
	}
	released, err := u.locker().Sweep(ctx, func(machine types.UID) bool { return idle[machine] })
	if err != nil {
		return fmt.Errorf("release what was left behind in cluster %s: %w", key, err)
	}
	if len(released) > 0 {
		ctrl.LoggerFrom(ctx).Info("Released node leases that were left behind", "cluster", key, "leases", released)
	}
	if u.swept == nil {
		u.swept = map[types.NamespacedName]bool{}
	}
	u.swept[key] = true
	return nil
}

// idle are the Machines of a cluster on whose nodes nothing of refit's is under way.
func (u *update) idle(ctx context.Context, cluster types.NamespacedName) (map[types.UID]bool, error) {
	of := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}}
	var machines clusterv1.MachineList
	if err := u.Client.List(ctx, &machines, of...); err != nil {
		return nil, fmt.Errorf("list the Machines of cluster %s: %w", cluster, err)
	}
	// An update that begins just now may not be in the cache.
	var updates refitv1.MachineUpdateList
	if err := u.Live.List(ctx, &updates, of...); err != nil {
		return nil, fmt.Errorf("list the MachineUpdates of cluster %s: %w", cluster, err)
	}
	idle := map[types.UID]bool{}
	for i := range machines.Items {
		idle[machines.Items[i].UID] = true
	}
	for i := range updates.Items {
		other := &update{mu: &updates.Items[i]}
		if other.underWay() || other.mu.Status.Node != nil {
			delete(idle, other.machineUID())
		}
	}
	return idle, nil
}
