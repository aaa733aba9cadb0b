package machineupdate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/loginprobe"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// loginTimeout bounds one login that tries whether a node can be reached, the way to the node included.
const loginTimeout = time.Minute

// SkipsLogin implements loginprobe.Nodes. What is not known keeps refit off the node.
func (r *Reconciler) SkipsLogin(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) bool {
	off, err := r.offNode(ctx, machine, orEmpty(mu, machine))
	return err != nil || off
}

// TryLogin implements loginprobe.Nodes.
func (r *Reconciler) TryLogin(ctx context.Context, key types.NamespacedName) (*loginprobe.Finding, error) {
	var machine clusterv1.Machine
	if err := r.Live.Get(ctx, key, &machine); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	mu, err := r.updateOf(ctx, &machine)
	if err != nil {
		return nil, err
	}
	if off, err := r.offNode(ctx, &machine, mu); err != nil || off {
		return nil, err
	}
	u := &update{Reconciler: r, mu: mu, regarding: &machine, looksOnly: true}
	w, err := u.tryLogin(ctx, &machine)
	switch {
	case err != nil:
		return nil, err
	case w == nil:
		return &loginprobe.Finding{}, nil
	case w.reason == refitv1.ReasonAudit:
		return nil, nil //nolint:nilnil // nothing was sent, and that is not the node's fault
	default:
		return &loginprobe.Finding{Reason: w.reason, Message: w.message}, nil
	}
}

// tryLogin logs in to the node of a Machine, and asks for nothing but what an update needs first. It returns what an update would wait for.
func (u *update) tryLogin(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	a, w, err := u.access(ctx, machine)
	if ctx.Err() != nil {
		return nil, ctx.Err() // shutting down
	}
	if w != nil || err != nil {
		return w, err
	}
	bounded, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	err = u.overConnection(bounded, a, func(client *remote.Client) error { return client.LogIn(bounded) })
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case nodeaccess.IsAPI(err):
		return nil, err
	}
	if w = u.met(err); w == nil && bounded.Err() != nil {
		w = &wait{reason: refitv1.ReasonUnreachable, message: fmt.Sprintf("the node has not answered within %s", loginTimeout)}
	}
	if w == nil { // nothing was sent: what the NodeAccess refers to can't be used
		w = &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()}
	}
	return w, nil
}

// updateOf returns the MachineUpdate of a Machine as the API server has it, or an empty one that is not stored.
func (r *Reconciler) updateOf(ctx context.Context, machine *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	var mu refitv1.MachineUpdate
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(machine), &mu); {
	case apierrors.IsNotFound(err):
		return orEmpty(nil, machine), nil
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s/%s: %w", machine.Namespace, machine.Name, err)
	case !metav1.IsControlledBy(&mu, machine):
		return orEmpty(nil, machine), nil
	}
	return &mu, nil
}

// orEmpty returns the MachineUpdate of a Machine, or an empty one that is not stored.
func orEmpty(mu *refitv1.MachineUpdate, machine *clusterv1.Machine) *refitv1.MachineUpdate {
	if mu != nil {
		return mu
	}
	return &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: machine.Name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
	}}
}
