package machineupdate

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/revision"
)

// access returns how the Machine's node is reached, or what the update waits for. Errors of the management cluster are returned: they say nothing about
// the node.
func (u *update) access(ctx context.Context, machine *clusterv1.Machine) (*nodeaccess.Access, *wait, error) {
	na, err := nodeaccess.Find(ctx, u.Client, machine)
	recorded := ""
	if err == nil {
		u.circumstances.access = revision.Of(na)
		if u.firstUse = na.Spec.SSH.HostKeys.Policy == refitv1.HostKeyTrustOnFirstUse; u.firstUse {
			recorded, err = u.knownHost(ctx, machine)
		}
	}
	if errors.Is(err, nodeaccess.ErrForeignHost) {
		return nil, &wait{reason: refitv1.ReasonHostKey, message: err.Error()}, nil
	}
	var a *nodeaccess.Access
	if err == nil {
		record := func(ctx context.Context, key string) error { return u.knownHosts().Record(ctx, machine, key) }
		a, err = nodeaccess.Resolve(na, machine, u.secretReader(ctx, machine.Namespace), recorded, record)
	}
	switch {
	case err == nil:
		return a, nil, nil
	case nodeaccess.IsAPI(err):
		return nil, nil, err
	default:
		return nil, &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()}, nil
	}
}

func (u *update) knownHosts() nodeaccess.KnownHosts {
	return nodeaccess.KnownHosts{Live: u.Live, Client: u.Client}
}

// knownHost returns the host key that was recorded for the Machine, which was read live; "" if none was. One that an earlier version of
// refit has kept in the status moves to where it is kept now.
func (u *update) knownHost(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	key, forgotten, err := u.knownHosts().Find(ctx, machine)
	if err != nil {
		return "", err
	}
	if forgotten {
		u.event(corev1.EventTypeNormal, "HostKeyForgotten", "Connect", "the recorded host key was that of the node of an earlier Machine of this name")
	}
	if u.mu.Status.HostKey == "" {
		return key, nil
	}
	if key == "" {
		key = u.mu.Status.HostKey
		if err := u.knownHosts().Record(ctx, machine, key); err != nil {
			return "", err
		}
	}
	// Who deletes the KnownHost is not to find it again.
	return key, nodeaccess.OfAPI(u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.HostKey = "" }))
}

// met returns what the update waits for after an error on the way to the node, as waitFor does. Where the host key was recorded at the
// first contact it says how a person accepts another one.
func (u *update) met(err error) *wait {
	w := waitFor(err)
	if w != nil && w.reason == refitv1.ReasonHostKey && u.firstUse {
		w.message += "; the record is KnownHost " + u.mu.Name + "; to have refit trust the next key that the node shows: " + nodeaccess.DeleteKnownHost(u.mu)
	}
	return w
}
