//go:build e2e

package apiserver_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/apiserver"
)

// TestNodeAccessesSayOneWayIn is about what a real API server takes for a NodeAccess.
func TestNodeAccessesSayOneWayIn(t *testing.T) {
	o := options(t)
	o.Dir = t.TempDir()
	s := start(t, o)
	_, err := apiserver.Apply(t.Context(), connect(t, s.Kubeconfig), filepath.Join("..", "..", "config", "crd", "bases"))
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, refitv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	key := refitv1.SecretKeyReference{Name: "key"}
	certificate := refitv1.UserCertificate{CAKeySecretRef: key}
	jump := refitv1.JumpHost{Address: "jump", User: "jump", HostKeys: refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &key}}
	through := func(edit func(*refitv1.JumpHost)) refitv1.SSHAccess {
		j := jump
		edit(&j)
		return refitv1.SSHAccess{PrivateKeySecretRef: key, JumpHost: &j}
	}
	with := func(edit func(*refitv1.UserCertificate)) refitv1.SSHAccess {
		u := certificate
		edit(&u)
		return refitv1.SSHAccess{UserCertificate: u}
	}
	for name, tc := range map[string]struct {
		ssh  refitv1.SSHAccess
		says string
	}{
		"a key":                    {ssh: refitv1.SSHAccess{PrivateKeySecretRef: key}},
		"a key and a gate":         {ssh: refitv1.SSHAccess{PrivateKeySecretRef: key, Mode: refitv1.SSHGate}},
		"a key and a shell":        {ssh: refitv1.SSHAccess{PrivateKeySecretRef: key, Mode: refitv1.SSHShell}},
		"certificates":             {ssh: refitv1.SSHAccess{UserCertificate: certificate}},
		"certificates and a gate":  {ssh: refitv1.SSHAccess{UserCertificate: certificate, Mode: refitv1.SSHGate}},
		"certificates and a shell": {refitv1.SSHAccess{UserCertificate: certificate, Mode: refitv1.SSHShell}, "the mode is Gate"},
		"neither":                  {refitv1.SSHAccess{}, "exactly one of privateKeySecretRef and userCertificate"},
		"both":                     {refitv1.SSHAccess{PrivateKeySecretRef: key, UserCertificate: certificate}, "exactly one of"},
		"another mode":             {refitv1.SSHAccess{PrivateKeySecretRef: key, Mode: "Telnet"}, "Unsupported value"},
		"a command of spaces":      {with(func(u *refitv1.UserCertificate) { u.ForceCommand = "  " }), "forceCommand"},
		"a command, and addresses": {ssh: with(func(u *refitv1.UserCertificate) {
			u.ForceCommand, u.SourceAddresses = "sudo -n /opt/gate gate", []string{"10.0.0.0/8"}
		})},
		"a command that is a shell":             {with(func(u *refitv1.UserCertificate) { u.ForceCommand = "sudo -n sh" }), "forceCommand"},
		"a network with bits behind the prefix": {with(func(u *refitv1.UserCertificate) { u.SourceAddresses = []string{"10.20.1.5/16"} }), "without bits behind the prefix"},
		"an address with a zone":                {with(func(u *refitv1.UserCertificate) { u.SourceAddresses = []string{"fe80::1%eth0"} }), "must be an address"},
		"an IPv4 address as IPv6":               {with(func(u *refitv1.UserCertificate) { u.SourceAddresses = []string{"::ffff:10.0.0.1"} }), "must be an address"},
		"one authority for the nodes and a jump host": {refitv1.SSHAccess{UserCertificate: certificate, JumpHost: &refitv1.JumpHost{
			Address: "jump", User: "jump", HostKeys: jump.HostKeys, UserCertificate: certificate,
		}}, "an authority of its own"},
		"an address twice":              {with(func(u *refitv1.UserCertificate) { u.SourceAddresses = []string{"::1", "::1"} }), "Duplicate value"},
		"an authority without a name":   {with(func(u *refitv1.UserCertificate) { u.CAKeySecretRef.Name, u.Principal = "", "refit" }), "caKeySecretRef.name"},
		"a jump host with a key":        {ssh: through(func(j *refitv1.JumpHost) { j.PrivateKeySecretRef = key })},
		"a jump host with certificates": {ssh: through(func(j *refitv1.JumpHost) { j.UserCertificate = certificate })},
		"a jump host with neither":      {through(func(*refitv1.JumpHost) {}), "exactly one of"},
		"a jump host with both":         {through(func(j *refitv1.JumpHost) { j.PrivateKeySecretRef, j.UserCertificate = key, certificate }), "exactly one of"},
		"a jump host with a command": {through(func(j *refitv1.JumpHost) {
			j.UserCertificate = refitv1.UserCertificate{CAKeySecretRef: key, ForceCommand: "sh"}
		}), "nothing is run on a jump host"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ssh.User, tc.ssh.HostKeys = "refit", refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse}
			na := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "all-"}, Spec: refitv1.NodeAccessSpec{SSH: tc.ssh}}
			var err error
			require.Eventually(t, func() bool { // the API server takes a moment to serve a new type
				err = c.Create(t.Context(), na)
				return !apierrors.IsNotFound(err)
			}, wait, tick)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), err)
			require.ErrorContains(t, err, tc.says)
		})
	}
}
