package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/keytest"
)

func TestUserCertificates(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Unix(1_800_000_000, 0)
	for name, test := range map[string]struct {
		authority any
		opts      CertificateOptions
		signedBy  string
		critical  map[string]string
		extends   map[string]string
	}{
		"for a node": {
			authority: ecdsaKey, opts: CertificateOptions{Principal: "refit", KeyID: "refit:fleet/worker-1", ForceCommand: "/usr/local/sbin/refit-node gate"}, signedBy: ssh.KeyAlgoECDSA256,
			critical: map[string]string{"force-command": "/usr/local/sbin/refit-node gate"},
		},
		"from one network, of an RSA authority": {
			authority: rsaKey, opts: CertificateOptions{Principal: "refit", ForceCommand: node.DefaultGate, Sources: []string{"10.0.0.0/8", "::1"}}, signedBy: ssh.KeyAlgoRSASHA512,
			critical: map[string]string{"force-command": node.DefaultGate, "source-address": "10.0.0.0/8,::1"},
		},
		"for a jump host": {
			authority: ecdsaKey, opts: CertificateOptions{Principal: "jump", ForceCommand: "sh", JumpHost: true}, signedBy: ssh.KeyAlgoECDSA256,
			critical: map[string]string{"force-command": "/bin/false"}, extends: map[string]string{"permit-port-forwarding": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := NewUserCertificates(keytest.PEM(t, test.authority, ""), test.opts)
			require.NoError(t, err)
			signer, err := c.signer(now)
			require.NoError(t, err)
			cert, ok := signer.PublicKey().(*ssh.Certificate)
			require.True(t, ok)
			assert.Equal(t, uint32(ssh.UserCert), cert.CertType)
			assert.Equal(t, []string{test.opts.Principal}, cert.ValidPrincipals)
			assert.Equal(t, test.opts.KeyID, cert.KeyId)
			assert.Equal(t, test.critical, cert.CriticalOptions)
			assert.Equal(t, test.extends, cert.Extensions)
			assert.Equal(t, uint64(now.Add(-time.Minute).Unix()), cert.ValidAfter)
			assert.Equal(t, uint64(now.Add(5*time.Minute).Unix()), cert.ValidBefore)
			assert.Equal(t, test.signedBy, cert.Signature.Format)
			assert.Equal(t, ssh.KeyAlgoED25519, cert.Key.Type())

			again, err := c.signer(now)
			require.NoError(t, err)
			other := again.PublicKey().(*ssh.Certificate) //nolint:forcetypeassert // as the first
			assert.NotEqual(t, cert.Key, other.Key, "each has a key of its own")
			assert.NotEqual(t, cert.Serial, other.Serial)
		})
	}
}

func TestUserCertificatesAreRefused(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	good := CertificateOptions{Principal: "refit", ForceCommand: node.DefaultGate}
	for want, test := range map[string]struct {
		authority []byte
		opts      CertificateOptions
	}{
		"has a passphrase":   {keytest.PEM(t, key, "secret"), good},
		"can't be read":      {[]byte("secret"), good},
		"every user":         {keytest.PEM(t, key, ""), CertificateOptions{ForceCommand: node.DefaultGate}},
		"a shell":            {keytest.PEM(t, key, ""), CertificateOptions{Principal: "refit", ForceCommand: "\t"}},
		"neither an address": {keytest.PEM(t, key, ""), CertificateOptions{Principal: "refit", ForceCommand: node.DefaultGate, Sources: []string{"*"}}},
	} {
		_, err := NewUserCertificates(test.authority, test.opts)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestTheCommandOfCertificatesIsAGate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for command, gate := range map[string]bool{
		node.DefaultGate: true, "sudo -n " + node.DefaultGate: true, "/opt/bin/refit-node --root /x gate": true, "/opt/gate gate": true,
		"/bin/sh": false, "sudo -n sh": false, "sudo -n bash gate": false, "true\nid": false, node.DefaultGate + "; sh": false, node.DefaultGate + "\n": false,
		"/bin/sh -c 'id' gate": false, "/bin/sh -c $0 gate": false, "sudo -s /bin/sh gate": false, "/x & /y gate": false, "refit-node gate": false,
	} {
		_, err := NewUserCertificates(keytest.PEM(t, key, ""), CertificateOptions{Principal: "refit", ForceCommand: command})
		if gate {
			require.NoError(t, err, command)
			continue
		}
		require.ErrorContains(t, err, "must be the gate", command)
	}
}

func TestSourcesThatSSHDRejectsAreRefused(t *testing.T) {
	for source, want := range map[string]string{
		"10.0.0.1": "", "10.20.0.0/16": "", "::1": "", "2001:db8::/32": "",
		"10.20.1.5/16": "write 10.20.0.0/16", "2001:db8::1/32": "write 2001:db8::/32",
		"fe80::1%eth0": "without a zone", "::ffff:10.0.0.1": "without ::ffff:", "::ffff:10.0.0.0/104": "without ::ffff:",
	} {
		err := checkSources([]string{"10.0.0.0/8", source})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}
