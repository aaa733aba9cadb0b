package nodeaccess

import (
	"crypto/ed25519"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestLogin(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	line := string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	line = line[:len(line)-1]
	certificate := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert}
	require.NoError(t, certificate.SignCert(ptr.To(zeros{}), signer))
	certified, err := ssh.NewCertSigner(certificate, signer)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		target remote.Target
		want   node.Login
	}{
		"a key":              {remote.Target{User: "ops", PrivateKey: pem.EncodeToMemory(block)}, node.Login{User: "ops", Keys: []string{line}}},
		"a certificate":      {remote.Target{User: "ops", Signers: []ssh.Signer{certified}}, node.Login{User: "ops", Keys: []string{line}}},
		"a key that is none": {remote.Target{User: "ops", PrivateKey: []byte("x")}, node.Login{User: "ops"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, (&Access{Target: tc.target}).Login())
		})
	}
}

// zeros is a source of numbers that are not random.
type zeros struct{}

func (*zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAddresses(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Status.Addresses = clusterv1.MachineAddresses{
		{Type: clusterv1.MachineHostName, Address: "host"}, {Type: clusterv1.MachineExternalIP, Address: "203.0.113.1"},
		{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}, {Type: clusterv1.MachineInternalIP, Address: "2001:db8::1"},
	}
	for name, tc := range map[string]struct {
		annotation string
		types      []clusterv1.MachineAddressType
		want       []string
	}{
		"the default order":             {"", nil, []string{"192.0.2.1:2222", "[2001:db8::1]:2222", "203.0.113.1:2222", "host:2222"}},
		"the NodeAccess' order":         {"", []clusterv1.MachineAddressType{clusterv1.MachineHostName}, []string{"host:2222"}},
		"the annotation wins":           {"10.0.0.1:22", nil, []string{"10.0.0.1:22"}},
		"an annotation without port":    {"10.0.0.1", nil, []string{"10.0.0.1:2222"}},
		"an IPv6 annotation":            {"2001:db8::22", nil, []string{"[2001:db8::22]:2222"}},
		"an IPv6 annotation and a port": {"[2001:db8::22]:22", nil, []string{"[2001:db8::22]:22"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine.DeepCopy()
			if tc.annotation != "" {
				m.Annotations = map[string]string{refitv1.AddressAnnotation: tc.annotation}
			}
			got, err := addressesOf(m, refitv1.NodeAccessSpec{AddressTypes: tc.types, SSH: refitv1.SSHAccess{Port: 2222}})
			require.NoError(t, err)
			var texts []string
			for _, a := range got {
				texts = append(texts, a.String())
			}
			require.Equal(t, tc.want, texts)
		})
	}
	_, err := addressesOf(&clusterv1.Machine{}, refitv1.NodeAccessSpec{})
	require.ErrorContains(t, err, refitv1.AddressAnnotation)
}

func TestAddressCIDRs(t *testing.T) {
	addresses := func(hosts ...string) (out []remote.Address) {
		for _, h := range hosts {
			out = append(out, remote.Address{Host: h, Port: 22})
		}
		return out
	}
	for name, tc := range map[string]struct {
		cidrs []string
		hosts []string
		jump  bool
		want  []string
		says  string
	}{
		"no bound":                       {hosts: []string{"192.0.2.1", "n1"}, want: []string{"192.0.2.1", "n1"}},
		"within":                         {cidrs: []string{"192.0.2.0/24"}, hosts: []string{"203.0.113.1", "192.0.2.1"}, want: []string{"192.0.2.1"}},
		"IPv6":                           {cidrs: []string{"2001:db8::/32"}, hosts: []string{"2001:db8::1", "2001:db9::1"}, want: []string{"2001:db8::1"}},
		"an IPv4 address written as one": {cidrs: []string{"192.0.2.0/24"}, hosts: []string{"::ffff:192.0.2.1", "::ffff:203.0.113.1"}, want: []string{"::ffff:192.0.2.1"}},
		"a name is looked at later":      {cidrs: []string{"192.0.2.0/24"}, hosts: []string{"n1"}, want: []string{"n1"}},
		"but not behind a jump host":     {cidrs: []string{"192.0.2.0/24"}, hosts: []string{"n1"}, jump: true, says: "names don't count"},
		"none":                           {cidrs: []string{"192.0.2.0/24"}, hosts: []string{"169.254.169.254"}, says: "(169.254.169.254) are in none of these ranges"},
	} {
		t.Run(name, func(t *testing.T) {
			within, err := parseCIDRs(tc.cidrs)
			require.NoError(t, err)
			got, err := bound(addresses(tc.hosts...), within, tc.jump)
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, addresses(tc.want...), got)
		})
	}
	_, err := parseCIDRs([]string{"192.0.2.0"})
	require.ErrorContains(t, err, "10.0.0.0/8")
}
