//go:build e2e

package install

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/nodetest"
)

// login is how refit logs in to the nodes of all Machines, for which one stands in.
type login struct {
	node   *nodetest.Node
	access *refitv1.NodeAccess
	key    *corev1.Secret
}

// node has refit check log in to a node, by an access that would do if it were not spoilt.
func (i *installation) node(spoil func(*testing.T, login)) plant {
	return func(ctx context.Context, t *testing.T) func() {
		t.Helper()
		n, err := nodetest.Start(nodetest.Options{})
		require.NoError(t, err)
		in := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: i.cluster.Namespace, Name: name}
		}
		key := &corev1.Secret{ObjectMeta: in("login-key"), Data: map[string][]byte{"ssh-privatekey": n.UserKey()}}
		hosts := &corev1.Secret{ObjectMeta: in("login-hosts"), Data: map[string][]byte{"known_hosts": n.KnownHosts()}}
		access := &refitv1.NodeAccess{ObjectMeta: in("login")}
		access.Spec.SSH.Port, access.Spec.SSH.User = int32(n.Address().Port), n.User()
		access.Spec.SSH.PrivateKeySecretRef.Name = key.Name
		access.Spec.SSH.HostKeys = refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: hosts.Name}}
		access.Spec.AgentDirectory = "refit/bin"
		spoil(t, login{n, access, key})
		made := []client.Object{key, hosts, access}
		for _, o := range made {
			require.NoError(t, i.Client.Create(ctx, o))
		}
		i.leadTo(ctx, t, n.Address().Host)
		i.logins = "-1"
		return func() {
			i.logins = "0"
			i.leadTo(ctx, t, "")
			for _, o := range made {
				require.NoError(t, i.Client.Delete(ctx, o))
			}
			require.NoError(t, n.Close())
		}
	}
}

// leadTo has refit come to an address for all Machines, or to their own if it is empty.
func (i *installation) leadTo(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	var list clusterv1.MachineList
	require.NoError(t, i.Client.List(ctx, &list, client.InNamespace(i.cluster.Namespace)))
	for n := range list.Items {
		m := &list.Items[n]
		was := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, refitv1.AddressAnnotation, address)
		if address == "" {
			delete(m.Annotations, refitv1.AddressAnnotation)
		}
		require.NoError(t, i.Client.Patch(ctx, m, client.MergeFrom(was)))
	}
}

func anotherKey(t *testing.T, l login) {
	t.Helper()
	key, err := nodetest.NewKey()
	require.NoError(t, err)
	l.key.Data["ssh-privatekey"] = key
}

func anotherHostKey(t *testing.T, l login) {
	t.Helper()
	require.NoError(t, l.node.ChangeHostKey())
}

func noSudo(t *testing.T, l login) {
	t.Helper()
	l.access.Spec.SSH.Sudo = true
	refuses := "#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(l.node.Root(), "usr", "bin", "sudo"), []byte(refuses), 0o700))
}

func openDirectory(t *testing.T, l login) {
	t.Helper()
	dir := filepath.Join(l.node.Root(), filepath.FromSlash(l.access.Spec.AgentDirectory))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o777)) // that is the mistake
}
