package nodeaccess

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// ErrForeignHost means that there is a host key which is not known to be the Machine's.
var ErrForeignHost = errors.New("it does not belong to the Machine, by its owner reference, and is not used")

// KnownHosts keep what is trusted on first use in a KnownHost of the Machine's name. It is the Machine's whose UID its owner reference
// has: clusterctl move writes the UID that the Machine has after it into that, and into nothing else.
type KnownHosts struct {
	// Live reads from the API server, and Client writes there.
	Live   client.Reader
	Client client.Client
}

// Find returns the host key that was recorded for the Machine, which was read live; "" if none was. forgotten means that there was the
// one of an earlier Machine of that name, which it has deleted.
func (k KnownHosts) Find(ctx context.Context, machine *clusterv1.Machine) (key string, forgotten bool, err error) {
	var known refitv1.KnownHost
	switch err := k.Live.Get(ctx, client.ObjectKeyFromObject(machine), &known); {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, OfAPI(fmt.Errorf("read KnownHost %s/%s: %w", machine.Namespace, machine.Name, err))
	}
	if metav1.IsControlledBy(&known, machine) {
		return known.Spec.HostKey, false, nil
	}
	owner := metav1.GetControllerOf(&known)
	if owner == nil || !isMachine(owner) || owner.Name != machine.Name {
		return "", false, fmt.Errorf("KnownHost %s/%s: %w; if the node may be trusted again, delete it: %s",
			known.Namespace, known.Name, ErrForeignHost, DeleteKnownHost(machine))
	}
	// Another Machine had the name. What was known of its node says nothing about the node of this one.
	if err := k.Client.Delete(ctx, &known, client.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return "", false, OfAPI(fmt.Errorf("delete KnownHost %s/%s of an earlier Machine: %w", known.Namespace, known.Name, err))
	}
	return "", true, nil
}

func isMachine(owner *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == "Machine"
}

// Record keeps the key that the node of a Machine has shown at the first contact. It fails when there is one already.
func (k KnownHosts) Record(ctx context.Context, machine *clusterv1.Machine, key string) error {
	owner := metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))
	owner.BlockOwnerDeletion = nil // it would take the right to update the Machine's finalizers
	known := &refitv1.KnownHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       machine.Namespace,
			Name:            machine.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: refitv1.KnownHostSpec{HostKey: key},
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err == nil {
		known.Spec.Fingerprint = ssh.FingerprintSHA256(public)
	}
	if err := k.Client.Create(ctx, known); err != nil {
		return OfAPI(fmt.Errorf("create KnownHost %s/%s: %w", known.Namespace, known.Name, err))
	}
	return nil
}

// DeleteKnownHost returns the command by which a person has the next key trusted that the node of a Machine shows.
func DeleteKnownHost(machine client.Object) string {
	return fmt.Sprintf("kubectl delete knownhost -n %s %s", machine.GetNamespace(), machine.GetName())
}
