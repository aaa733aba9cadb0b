package nodeaccess

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// ErrNone means that no NodeAccess selects a Machine.
var ErrNone = errors.New("refit does not know how to reach its node")

// Machines finds out which Machines have no NodeAccess.
type Machines struct {
	// Client reads from caches that are filled.
	Client client.Reader
}

// Without returns why a Machine has no NodeAccess, or one of those of a MachineSet; empty if each has one, or several: then an update waits, and says
// for what. It fails for a Machine that was updated before: that had a NodeAccess, and may be about to get another one.
func (m Machines) Without(ctx context.Context, namespace, name string, set bool) (string, error) {
	machines, err := m.find(ctx, namespace, name, set)
	if err != nil || len(machines) == 0 {
		return "", err // a cache is behind, and an update tells
	}
	var accesses refitv1.NodeAccessList
	if err := m.Client.List(ctx, &accesses, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list NodeAccesses: %w", err)
	}
	for _, machine := range machines {
		_, err := Select(accesses.Items, machine)
		if !errors.Is(err, ErrNone) {
			continue
		}
		updated, failed := m.updated(ctx, machine)
		switch {
		case failed != nil:
			return "", failed
		case updated:
			return "", fmt.Errorf("%w; it was updated in place before, so that nothing is decided until one does, or its MachineUpdate is gone", err)
		}
		return err.Error(), nil
	}
	return "", nil
}

// find returns a Machine, or those of a MachineSet, which are not being deleted.
func (m Machines) find(ctx context.Context, namespace, name string, set bool) ([]*clusterv1.Machine, error) {
	if !set {
		var machine clusterv1.Machine
		err := m.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &machine)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []*clusterv1.Machine{&machine}, err
	}
	var list clusterv1.MachineList
	if err := m.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	var out []*clusterv1.Machine
	for i := range list.Items {
		machine := &list.Items[i]
		owner := metav1.GetControllerOf(machine)
		if owner != nil && owner.Kind == "MachineSet" && owner.Name == name && machine.DeletionTimestamp.IsZero() {
			out = append(out, machine)
		}
	}
	return out, nil
}

// updated reports whether a Machine has an update, or had one.
func (m Machines) updated(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	var mu refitv1.MachineUpdate
	err := m.Client.Get(ctx, client.ObjectKeyFromObject(machine), &mu)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && metav1.IsControlledBy(&mu, machine), err
}
