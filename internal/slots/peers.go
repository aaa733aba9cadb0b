package slots

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/lease"
)

// Peers are the others that disturb nodes of a cluster.
type Peers interface {
	// Taken returns the nodes that they disturb, and for each one who does. A node that nobody disturbs is not in it.
	Taken(ctx context.Context) (map[string]string, error)
}

// PeersFunc is a function that is Peers.
type PeersFunc func(ctx context.Context) (map[string]string, error)

// Taken implements Peers.
func (f PeersFunc) Taken(ctx context.Context) (map[string]string, error) { return f(ctx) }

var (
	_ Peers = PeersFunc(nil)
	_ Peers = WorkloadPeers{}
)

// WorkloadPeers are those who say in the workload cluster that they disturb a node: by medik8s' node lease, or by a
// NodeMaintenance. What refit itself holds is not among them, since that has a slot.
type WorkloadPeers struct {
	// Client reads from the workload cluster's API server.
	Client client.Reader
	// LeaseNamespace is where node leases are; medik8s' if empty.
	LeaseNamespace string
	// Clock should agree with those of the others.
	Clock clock.PassiveClock
}

// Taken implements Peers.
func (p WorkloadPeers) Taken(ctx context.Context) (map[string]string, error) {
	taken := map[string]string{}
	if err := p.leases(ctx, taken); err != nil {
		return nil, err
	}
	if err := p.maintenances(ctx, taken); err != nil {
		return nil, err
	}
	return taken, nil
}

// leases adds the nodes whose lease another holds.
func (p WorkloadPeers) leases(ctx context.Context, taken map[string]string) error {
	namespace := cmp.Or(p.LeaseNamespace, lease.DefaultNamespace)
	var list coordinationv1.LeaseList
	if err := p.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Leases in %s: %w", namespace, err)
	}
	own, now := lease.Holder(""), p.Clock.Now()
	for i := range list.Items {
		l := &list.Items[i]
		who := ptr.Deref(l.Spec.HolderIdentity, "")
		node, ok := strings.CutPrefix(l.Name, lease.Name(""))
		if !ok || node == "" || who == "" || strings.HasPrefix(who, own) || lapsed(l, now) {
			continue
		}
		taken[node] = who
	}
	return nil
}

// lapsed reports whether a lease is over, as far as its times tell. Before the lease of a node is taken it is watched instead, as
// its times come from a clock that nobody knows; here a lease that somebody left behind must not count for ever. One without
// times does not lapse, nor does one that a person holds (of kubeadm KEP-1411 says so).
func lapsed(l *coordinationv1.Lease, now time.Time) bool {
	patience := lease.Patience(l)
	if lease.IsPerson(ptr.Deref(l.Spec.HolderIdentity, "")) || l.Spec.RenewTime == nil || patience <= 0 {
		return false
	}
	return now.Sub(l.Spec.RenewTime.Time) > patience+lease.Tolerance
}

// maintenances adds the nodes for which there is a NodeMaintenance: its lease lapses while it goes on. It is what ends the
// maintenance, so that it is named rather than the lease, and of several the first by name.
func (p WorkloadPeers) maintenances(ctx context.Context, taken map[string]string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(lease.NodeMaintenanceGVK.GroupVersion().WithKind(lease.NodeMaintenanceGVK.Kind + "List"))
	switch err := p.Client.List(ctx, list); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil // the node-maintenance-operator is not there
	case err != nil:
		return fmt.Errorf("list NodeMaintenances: %w", err)
	}
	first := map[string]string{}
	for i := range list.Items {
		nm := &list.Items[i]
		node, _, err := unstructured.NestedString(nm.Object, "spec", "nodeName")
		if err != nil {
			return fmt.Errorf("read NodeMaintenance %s: %w", nm.GetName(), err)
		}
		if name, ok := first[node]; node != "" && (!ok || nm.GetName() < name) {
			first[node] = nm.GetName()
			taken[node] = "NodeMaintenance " + nm.GetName()
		}
	}
	return nil
}
