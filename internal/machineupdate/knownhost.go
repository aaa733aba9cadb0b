package machineupdate

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// What is trusted on first use is kept in a KnownHost of the Machine's name. It is the Machine's whose UID its owner reference has:
// clusterctl move writes the UID that the Machine has after it into that, and into nothing else.

// errForeignHost means that there is a host key which is not known to be the Machine's.
var errForeignHost = errors.New("it does not belong to the Machine, by its owner reference, and is not used")

// knownHost returns the host key that was recorded for the Machine, which was read live; "" if none was.
func (u *update) knownHost(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	var known refitv1.KnownHost
	switch err := u.Live.Get(ctx, client.ObjectKeyFromObject(machine), &known); {
	case apierrors.IsNotFound(err):
		return u.moveHostKey(ctx, machine)
	case err != nil:
		return "", fmt.Errorf("read KnownHost %s/%s: %w", machine.Namespace, machine.Name, err)
	}
	if metav1.IsControlledBy(&known, machine) {
		return known.Spec.HostKey, u.forgetHostKey(ctx)
	}
	owner := metav1.GetControllerOf(&known)
	if owner == nil || !isMachine(owner) || owner.Name != machine.Name {
		return "", fmt.Errorf("KnownHost %s/%s: %w; if the node may be trusted anew, delete it: %s",
			known.Namespace, known.Name, errForeignHost, u.deleteKnownHost())
	}
	// Another Machine had the name. What was known of its node says nothing about the node of this one.
	if err := u.Client.Delete(ctx, &known, client.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("delete KnownHost %s/%s of an earlier Machine: %w", known.Namespace, known.Name, err)
	}
	u.event(corev1.EventTypeNormal, "HostKeyForgotten", "Connect", "the recorded host key was that of the node of an earlier Machine of this name")
	return u.moveHostKey(ctx, machine)
}

func isMachine(owner *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == "Machine"
}

// recordHost keeps the key that the node of a Machine has shown at the first contact. It fails when there is one already.
func (u *update) recordHost(ctx context.Context, machine *clusterv1.Machine, key string) error {
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
	if err := u.Client.Create(ctx, known); err != nil {
		return fmt.Errorf("create KnownHost %s/%s: %w", known.Namespace, known.Name, err)
	}
	return nil
}

// moveHostKey moves a host key that an earlier version of refit has kept in the status to where it is kept now.
func (u *update) moveHostKey(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	key := u.mu.Status.HostKey
	if key == "" {
		return "", nil
	}
	if err := u.recordHost(ctx, machine, key); err != nil {
		return "", err
	}
	return key, u.forgetHostKey(ctx)
}

// forgetHostKey empties the status of a host key that is kept elsewhere: who deletes the KnownHost is not to find it again.
func (u *update) forgetHostKey(ctx context.Context) error {
	if u.mu.Status.HostKey == "" {
		return nil
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.HostKey = "" })
}

func (u *update) deleteKnownHost() string {
	return fmt.Sprintf("kubectl delete knownhost -n %s %s", u.mu.Namespace, u.mu.Name)
}

// met returns what the update waits for after an error on the way to the node, as waitFor does. Where the host key was recorded at the
// first contact it says how a person accepts another one.
func (u *update) met(err error) *wait {
	w := waitFor(err)
	if w != nil && w.reason == refitv1.ReasonHostKey && u.firstUse {
		w.message += "; the record is KnownHost " + u.mu.Name + "; to have refit trust the next key that the node shows: " + u.deleteKnownHost()
	}
	return w
}
