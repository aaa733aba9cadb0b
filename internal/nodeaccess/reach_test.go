package nodeaccess_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// TestReach logs in to a node over SSH, after each of the mistakes that keep refit from it.
func TestReach(t *testing.T) {
	n, err := nodetest.Start(nodetest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	other, err := nodetest.NewKey()
	require.NoError(t, err)
	notRecorded := func(a *refitv1.NodeAccess) {
		a.Spec.SSH.HostKeys = refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse}
	}
	for name, tc := range map[string]struct {
		spoil func(access *refitv1.NodeAccess, key, hosts *corev1.Secret)
		more  func(m *clusterv1.Machine) client.Object
		is    error
		says  string
	}{
		"all is well": {},
		"a key that the node does not know": {
			spoil: func(_ *refitv1.NodeAccess, key, _ *corev1.Secret) { key.Data["ssh-privatekey"] = other }, is: remote.ErrUnauthorized,
		},
		"a Secret without the key": {
			spoil: func(_ *refitv1.NodeAccess, key, _ *corev1.Secret) { key.Data = nil }, says: "has no key ssh-privatekey",
		},
		"another host key": {
			spoil: func(_ *refitv1.NodeAccess, _, hosts *corev1.Secret) {
				stranger, err := nodetest.Start(nodetest.Options{})
				require.NoError(t, err)
				require.NoError(t, stranger.Close())
				hosts.Data["known_hosts"] = []byte(n.Address().String() + " " + stranger.HostKey())
			}, says: "host key",
		},
		"a host key that was not recorded yet": {
			spoil: func(a *refitv1.NodeAccess, _, _ *corev1.Secret) { notRecorded(a) }, is: nodeaccess.ErrNotMet,
		},
		"one that was": {
			spoil: func(a *refitv1.NodeAccess, _, _ *corev1.Secret) { notRecorded(a) },
			more: func(m *clusterv1.Machine) client.Object {
				owner := metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))
				return &refitv1.KnownHost{
					ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, OwnerReferences: []metav1.OwnerReference{*owner}},
					Spec:       refitv1.KnownHostSpec{HostKey: n.HostKey()},
				}
			},
		},
		"no sudo": {
			spoil: func(a *refitv1.NodeAccess, _, _ *corev1.Secret) { a.Spec.SSH.Sudo = true }, is: remote.ErrUnauthorized, says: "a password is required",
		},
		"no NodeAccess": {
			spoil: func(a *refitv1.NodeAccess, _, _ *corev1.Secret) { a.Spec.ClusterName = "another" }, says: "no NodeAccess in namespace lab selects Machine m1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sudo := "#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n"
			require.NoError(t, os.WriteFile(filepath.Join(n.Root(), "usr/bin", "sudo"), []byte(sudo), 0o700))
			machine := managementtest.Machine("lab", "m1", "c1")
			machine.UID = "uid-of-m1"
			machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: n.Address().Host}}
			in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "lab", Name: name} }
			key := &corev1.Secret{ObjectMeta: in("key"), Data: map[string][]byte{"ssh-privatekey": n.UserKey()}}
			hosts := &corev1.Secret{ObjectMeta: in("hosts"), Data: map[string][]byte{"known_hosts": n.KnownHosts()}}
			access := &refitv1.NodeAccess{ObjectMeta: in("all")}
			access.Spec.AgentDirectory = "bin-refit"
			access.Spec.SSH.Port = int32(n.Address().Port)
			access.Spec.SSH.User, access.Spec.SSH.PrivateKeySecretRef.Name = n.User(), "key"
			access.Spec.SSH.HostKeys = refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: "hosts"}}
			if tc.spoil != nil {
				tc.spoil(access, key, hosts)
			}
			objects := []client.Object{machine, key, hosts, access}
			if tc.more != nil {
				objects = append(objects, tc.more(machine))
			}
			err := nodeaccess.Reach(t.Context(), managementtest.New(objects...), remote.SSHDialer{}, machine)
			switch {
			case tc.is == nil && tc.says == "":
				require.NoError(t, err)
			case tc.is != nil:
				require.ErrorIs(t, err, tc.is)
			}
			require.True(t, tc.says == "" || err != nil)
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
			}
		})
	}
	require.NoDirExists(t, filepath.Join(n.Root(), "bin-refit"), "nothing is brought")
}
