package nodeaccess

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
)

// ErrNone means that no NodeAccess selects a Machine.
var ErrNone = errors.New("refit does not know how to reach its node")

// Machines finds out which Machines have no NodeAccess.
type Machines struct {
	// Client reads from caches that are filled.
	Client client.Reader
	// Live reads from the API server, which is asked before a NodeAccess is said not to be there. Nil: the Client does.
	Live client.Reader
	// Former knows the NodeAccesses of a moment ago. Nil: nobody does.
	Former *Former
}

// Without returns why a Machine has no NodeAccess, or one of those of a MachineSet; empty if each has one, or several: then an update waits, and says
// for what. What it says can't be taken back, since a machine is replaced for it. So it fails if the Machine, or any of the MachineSet, was updated before:
// that had a NodeAccess, and may be about to get another one; if there was a NodeAccess a moment ago, or may have been before this process began; and if the API
// server can't be asked.
func (m Machines) Without(ctx context.Context, namespace, name string, set bool) (string, error) {
	machines, err := m.find(ctx, namespace, name, set)
	if err != nil || len(machines) == 0 {
		return "", err // a cache is behind, and an update tells
	}
	var accesses refitv1.NodeAccessList
	if err := m.Client.List(ctx, &accesses, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list NodeAccesses: %w", err)
	}
	none := error(nil)
	for _, machine := range machines {
		_, err := Select(accesses.Items, machine)
		if !errors.Is(err, ErrNone) {
			continue
		}
		if none, err = m.confirm(ctx, machine, err); err != nil {
			return "", err
		} else if none != nil {
			break
		}
	}
	if none == nil {
		return "", nil
	}
	for _, machine := range machines { // with the one that has no NodeAccess all are replaced
		if err := updatedBefore(ctx, m.Client, machine, none); err != nil {
			return "", err
		}
	}
	return none.Error(), nil
}

// confirm returns why no NodeAccess selects a Machine, as a cache says, if the API server says so, too, and there was none a moment ago; nil if there is one.
func (m Machines) confirm(ctx context.Context, machine *clusterv1.Machine, none error) (confirmed, err error) {
	if name, until := m.Former.selected(machine); name != "" {
		return nil, fmt.Errorf("%w; NodeAccess %s selected it a moment ago, so that nothing is decided until one does again, or until %s",
			none, name, until.UTC().Format(time.RFC3339))
	}
	known, note := m.Former.absent(machine)
	if m.Live == nil || known {
		return none, nil
	}
	var is clusterv1.Machine // its labels may have changed, too
	if err := m.Live.Get(ctx, client.ObjectKeyFromObject(machine), &is); err != nil {
		return nil, fmt.Errorf("ask the API server for Machine %s, for which a cache has no NodeAccess: %w", machine.Name, err)
	}
	var accesses refitv1.NodeAccessList
	if err := m.Live.List(ctx, &accesses, client.InNamespace(machine.Namespace)); err != nil {
		return nil, fmt.Errorf("ask the API server for NodeAccesses, since a cache has none for Machine %s: %w", machine.Name, err)
	}
	if _, err := Select(accesses.Items, &is); !errors.Is(err, ErrNone) {
		return nil, nil
	}
	if err := updatedBefore(ctx, m.Live, machine, none); err != nil {
		return nil, err
	}
	if err := m.Former.missed(ctx, m.Live, machine, none); err != nil {
		return nil, err
	}
	note()
	return none, nil
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
	// They are many, and are only read.
	if err := m.Client.List(ctx, &list, index.OfMachineSet(namespace, name), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	var out []*clusterv1.Machine
	for i := range list.Items {
		if machine := &list.Items[i]; machine.DeletionTimestamp.IsZero() {
			out = append(out, machine)
		}
	}
	return out, nil
}

// updatedBefore fails if a Machine has an update, or had one. none is why the question arises.
func updatedBefore(ctx context.Context, from client.Reader, machine *clusterv1.Machine, none error) error {
	var mu refitv1.MachineUpdate
	switch err := from.Get(ctx, client.ObjectKeyFromObject(machine), &mu); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read MachineUpdate %s/%s: %w", machine.Namespace, machine.Name, err)
	case !metav1.IsControlledBy(&mu, machine):
		return nil
	}
	return fmt.Errorf("%w; Machine %s was updated in place before, so that nothing is decided until one does, or its MachineUpdate is gone", none, machine.Name)
}
