package nodeaccess

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestHowToLogIn(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	key := pem.EncodeToMemory(block)
	wrapped, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(wrapped)))
	_, other, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	block, err = ssh.MarshalPrivateKey(other, "")
	require.NoError(t, err)
	static := refitv1.SecretKeyReference{Name: "key"}
	jumpCA := refitv1.UserCertificate{CAKeySecretRef: refitv1.SecretKeyReference{Name: "jump-ca"}}
	certificate := refitv1.UserCertificate{CAKeySecretRef: refitv1.SecretKeyReference{Name: "ca", Key: "signer"}}
	trusted := refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: "hosts"}}
	secret := func(name, field string) ([]byte, error) {
		switch name + " " + field {
		case "key ssh-privatekey", "ca signer":
			return key, nil
		case "jump-ca ssh-privatekey":
			return pem.EncodeToMemory(block), nil
		case "hosts known_hosts":
			return []byte("* " + line), nil
		}
		return nil, fmt.Errorf("no Secret %s with %s", name, field)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "worker-1", Annotations: map[string]string{refitv1.AddressAnnotation: "10.0.0.1"},
	}}
	for name, tc := range map[string]struct {
		ssh  refitv1.SSHAccess
		want node.Login
		says string
	}{
		"by a key":                 {ssh: refitv1.SSHAccess{PrivateKeySecretRef: static}, want: node.Login{User: "refit", Keys: []string{line}}},
		"by a key, through a gate": {ssh: refitv1.SSHAccess{PrivateKeySecretRef: static, Mode: refitv1.SSHGate}, want: node.Login{User: "refit", Keys: []string{line}, Gate: true}},
		"by certificates":          {ssh: refitv1.SSHAccess{UserCertificate: certificate}, want: node.Login{User: "refit", Keys: []string{line}, Gate: true, Command: node.DefaultGate}},
		"by nothing":               {says: "spec.ssh.privateKeySecretRef: exactly one"},
		"by both":                  {ssh: refitv1.SSHAccess{PrivateKeySecretRef: static, UserCertificate: certificate}, says: "exactly one"},
		"by an authority under the default key": {
			ssh: refitv1.SSHAccess{UserCertificate: refitv1.UserCertificate{CAKeySecretRef: static}}, want: node.Login{User: "refit", Keys: []string{line}, Gate: true, Command: node.DefaultGate},
		},
		"by an authority without a Secret": {
			ssh: refitv1.SSHAccess{UserCertificate: refitv1.UserCertificate{CAKeySecretRef: refitv1.SecretKeyReference{Name: "gone"}}}, says: "spec.ssh.userCertificate.caKeySecretRef: no Secret gone with ssh-privatekey",
		},
		"by an authority that is none": {
			ssh: refitv1.SSHAccess{UserCertificate: refitv1.UserCertificate{CAKeySecretRef: refitv1.SecretKeyReference{Name: "hosts", Key: "known_hosts"}}}, says: "spec.ssh.userCertificate: the authority's private key can't be read",
		},
		"from what is no network": {
			ssh: refitv1.SSHAccess{UserCertificate: refitv1.UserCertificate{CAKeySecretRef: static, SourceAddresses: []string{"10.0.0.0/33"}}}, says: "neither an address nor a network",
		},
		"through a jump host without a key": {
			ssh: refitv1.SSHAccess{PrivateKeySecretRef: static, JumpHost: &refitv1.JumpHost{Address: "jump", User: "jump", HostKeys: trusted}}, says: "spec.ssh.jumpHost.privateKeySecretRef: exactly one",
		},
		"through a jump host by certificates": {
			ssh:  refitv1.SSHAccess{UserCertificate: certificate, JumpHost: &refitv1.JumpHost{Address: "jump", User: "jump", HostKeys: trusted, UserCertificate: jumpCA}},
			want: node.Login{User: "refit", Keys: []string{line}, Gate: true, Command: node.DefaultGate},
		},
		"through a jump host by one authority in two Secrets": {
			ssh: refitv1.SSHAccess{UserCertificate: certificate, JumpHost: &refitv1.JumpHost{
				Address: "jump", User: "jump", HostKeys: trusted, UserCertificate: refitv1.UserCertificate{CAKeySecretRef: static},
			}},
			says: "spec.ssh.jumpHost.userCertificate: the jump host needs an authority of its own",
		},
		"by certificates for a shell": {
			ssh:  refitv1.SSHAccess{UserCertificate: refitv1.UserCertificate{CAKeySecretRef: static, ForceCommand: "sudo -n sh"}},
			says: "spec.ssh.userCertificate: the command of certificates must be the gate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ssh.User, tc.ssh.HostKeys = "refit", trusted
			na := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: refitv1.NodeAccessSpec{SSH: tc.ssh}}
			a, err := Resolve(na, machine, secret, "", nil)
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, a.Login())
			require.Equal(t, tc.ssh.UserCertificate.CAKeySecretRef.Name != "", a.Target.Certificates != nil)
			if j := tc.ssh.JumpHost; j != nil {
				require.NotNil(t, a.Target.Jump.Certificates)
			}
		})
	}
}

// TestWhoSharesTheConnectionToAJumpHost demands that only those do for whom it would be made in the same way.
func TestWhoSharesTheConnectionToAJumpHost(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	hosts := "* " + string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	secrets := map[string]string{"key": "key of the nodes", "jump": "key of the jump host", "hosts": hosts}
	ref := func(name string) refitv1.SecretKeyReference { return refitv1.SecretKeyReference{Name: name} }
	trusted := refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: "hosts"}}
	na := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "all"}, Spec: refitv1.NodeAccessSpec{SSH: refitv1.SSHAccess{
		User: "refit", HostKeys: trusted, PrivateKeySecretRef: ref("key"),
		JumpHost: &refitv1.JumpHost{Address: "jump", User: "jump", HostKeys: trusted, PrivateKeySecretRef: ref("jump")},
	}}}
	digests := map[string]bool{}
	shared := func(machine string) string {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: machine, UID: types.UID(machine), Annotations: map[string]string{refitv1.AddressAnnotation: "10.0.0.1"},
		}}
		a, err := Resolve(na, m, func(name, _ string) ([]byte, error) { return []byte(secrets[name]), nil }, "", nil)
		require.NoError(t, err)
		require.Empty(t, a.Target.Shared, "nodes are not shared")
		require.Empty(t, a.Target.Kept, "who connects decides that")
		digests[a.Digest] = true
		return a.Target.Jump.Shared
	}
	seen := map[string]bool{shared("one"): true}
	require.True(t, seen[shared("two")])
	require.Len(t, digests, 2, "a connection is that of one Machine")
	for name, change := range map[string]func(){
		"another key":        func() { secrets["jump"] = "a new key" },
		"other host keys":    func() { secrets["hosts"] += hosts },
		"another user":       func() { na.Spec.SSH.JumpHost.User = "other" },
		"another address":    func() { na.Spec.SSH.JumpHost.Address = "other" },
		"another NodeAccess": func() { na.Name = "other" },
		"another namespace":  func() { na.Namespace = "other" },
	} {
		change()
		known := len(digests)
		require.False(t, seen[shared("one")], name)
		require.Len(t, digests, known+1, name)
		seen[shared("one")] = true
	}
}

func TestWhatACertificateIsBoundTo(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "worker-1"}}
	for want, s := range map[string]refitv1.SSHAccess{
		"/usr/local/sbin/refit-node gate":         {},
		"sudo -n /usr/local/sbin/refit-node gate": {Sudo: true},
		"/opt/gate": {Sudo: true, UserCertificate: refitv1.UserCertificate{ForceCommand: "/opt/gate"}},
	} {
		require.Equal(t, remote.CertificateOptions{KeyID: "refit:fleet/worker-1", ForceCommand: want}, certificateOf(s, machine))
	}
}
