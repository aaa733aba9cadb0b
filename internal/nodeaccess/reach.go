package nodeaccess

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
)

// ErrNotMet is returned by Reach for a node whose host key is recorded at the first contact, which has not been yet.
var ErrNotMet = errors.New("its host key is not known yet: refit records it when it comes to the node first")

// Reach logs in to the node of a Machine as an update would, and looks whether the agent could be brought there and run. It changes nothing, on the
// node and elsewhere. Errors are those of package remote, what is wrong with the NodeAccess, or ErrNotMet.
func Reach(ctx context.Context, live client.Reader, dialer remote.Dialer, machine *clusterv1.Machine) error {
	na, err := Find(ctx, live, machine)
	if err != nil {
		return err
	}
	recorded := ""
	if na.Spec.SSH.HostKeys.Policy == refitv1.HostKeyTrustOnFirstUse {
		if recorded, err = knownBefore(ctx, live, machine); err != nil {
			return err
		}
	}
	a, err := Resolve(na, machine, SecretsOf(ctx, live, machine.Namespace), recorded, func(context.Context, string) error { return ErrNotMet })
	if err != nil {
		return err
	}
	conn, err := dialer.Dial(ctx, a.Target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was only asked
	s := a.spec.SSH
	return remote.Reach(ctx, conn, remote.ClientOptions{Dir: a.spec.AgentDirectory, Sudo: s.Sudo, Gate: gateMode(s)})
}

// knownBefore returns the host key that was recorded for a Machine. Nothing is recorded, or forgotten.
func knownBefore(ctx context.Context, live client.Reader, machine *clusterv1.Machine) (string, error) {
	var known refitv1.KnownHost
	if err := live.Get(ctx, client.ObjectKeyFromObject(machine), &known); client.IgnoreNotFound(err) != nil {
		return "", OfAPI(fmt.Errorf("read KnownHost %s: %w", client.ObjectKeyFromObject(machine), err))
	} else if err != nil || !metav1.IsControlledBy(&known, machine) {
		return "", ErrNotMet
	}
	return known.Spec.HostKey, nil
}

// SecretsOf reads values of the Secrets of a namespace.
func SecretsOf(ctx context.Context, live client.Reader, namespace string) SecretFunc {
	return func(name, key string) ([]byte, error) {
		var secret corev1.Secret
		if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
			return nil, OfAPI(fmt.Errorf("read Secret %s/%s: %w", namespace, name, err))
		}
		value, ok := secret.Data[key]
		if !ok {
			return nil, fmt.Errorf("the Secret %s/%s has no key %s", namespace, name, key)
		}
		return value, nil
	}
}
