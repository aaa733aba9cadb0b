package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node"
)

const (
	// certificateLife is how long a certificate can be used to log in. A connection that was made lasts longer.
	certificateLife = 5 * time.Minute
	// clockSkew is how far a node's clock may be behind.
	clockSkew = time.Minute
	// noCommand is what a certificate that only forwards is bound to.
	noCommand = "/bin/false"
)

// gateForm is the form of the gate's command, which leaves a shell nothing to interpret. The CRD has it, too.
var gateForm = regexp.MustCompile(`^(sudo -n )?/[a-zA-Z0-9_./-]+( [a-zA-Z0-9_./=:@,+-]+)* gate$`)

// UserCertificates are what one authenticates with instead of a key that lasts: for each connection a new key, and a certificate of it that
// is good for five minutes, for one user, and for one command.
type UserCertificates struct {
	authority    ssh.Signer
	principal    string
	keyID        string
	forceCommand string
	sources      string
	forwards     bool
}

// CertificateOptions say what is in a certificate.
type CertificateOptions struct {
	// Principal is who logs in, as the node knows it: the user, or what its AuthorizedPrincipalsFile lists.
	Principal string
	// KeyID is what sshd logs.
	KeyID string
	// ForceCommand is all that can be run. It can't be empty, but for a jump host, on which nothing is run.
	ForceCommand string
	// Sources are the addresses and networks (CIDR) that may be logged in from. None: all.
	Sources []string
	// JumpHost makes certificates that can forward connections, and do nothing else.
	JumpHost bool
}

// NewUserCertificates returns what signs with an authority's private key, in PEM without a passphrase. Errors don't repeat it.
func NewUserCertificates(authority []byte, o CertificateOptions) (*UserCertificates, error) {
	signer, err := ssh.ParsePrivateKey(authority)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, errors.New("the authority's private key has a passphrase; use one without")
	case err != nil:
		return nil, errors.New("the authority's private key can't be read; it must be PEM, as ssh-keygen writes it")
	case o.Principal == "":
		return nil, errors.New("a certificate without a principal would be good for every user")
	case o.JumpHost:
		o.ForceCommand = noCommand
	case strings.TrimSpace(o.ForceCommand) == "":
		return nil, errors.New("a certificate without a command would be good for a shell")
	case !gateForm.MatchString(o.ForceCommand):
		return nil, fmt.Errorf("the command of certificates must be the gate: an absolute path, with \"sudo -n\" ahead of it if needed, and \"gate\" at the end, as in %q",
			node.DefaultGate)
	}
	if signer, err = withSHA512(signer); err != nil {
		return nil, err
	}
	if err := checkSources(o.Sources); err != nil {
		return nil, err
	}
	return &UserCertificates{
		authority: signer, principal: o.Principal, keyID: o.KeyID, forceCommand: o.ForceCommand,
		sources: strings.Join(o.Sources, ","), forwards: o.JumpHost,
	}, nil
}

// withSHA512 has an RSA key sign with that.
func withSHA512(s ssh.Signer) (ssh.Signer, error) {
	rsa, ok := s.(ssh.AlgorithmSigner)
	if !ok || s.PublicKey().Type() != ssh.KeyAlgoRSA {
		return s, nil
	}
	return ssh.NewSignerWithAlgorithms(rsa, []string{ssh.KeyAlgoRSASHA512})
}

// checkSources refuses what sshd would. sshd takes no certificate at all with one such address.
func checkSources(sources []string) error {
	for _, s := range sources {
		network, notNetwork := netip.ParsePrefix(s)
		address, notAddress := netip.ParseAddr(s)
		switch {
		case notNetwork != nil && notAddress != nil:
			return fmt.Errorf("%q is neither an address nor a network", begin(s, 60))
		case notNetwork == nil && network != network.Masked():
			return fmt.Errorf("sshd takes no certificate for %q, which has bits behind the prefix: write %s", s, network.Masked())
		case notNetwork == nil && network.Addr().Is4In6() || notAddress == nil && (address.Is4In6() || address.Zone() != ""):
			return fmt.Errorf("sshd does not know where %q is: write an IPv4 address without ::ffff:, and an address without a zone", begin(s, 60))
		}
	}
	return nil
}

// Authority is the authority's public key, as a line of authorized_keys.
func (c *UserCertificates) Authority() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(c.authority.PublicKey())))
}

// ForceCommand is all that can be run with a certificate.
func (c *UserCertificates) ForceCommand() string { return c.forceCommand }

// signer returns a new key with a certificate of it.
func (c *UserCertificates) signer(now time.Time) (ssh.Signer, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return nil, err
	}
	cert := &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, Serial: binary.BigEndian.Uint64(serial[:]), KeyId: c.keyID,
		ValidPrincipals: []string{c.principal},
		ValidAfter:      uint64(now.Add(-clockSkew).Unix()), ValidBefore: uint64(now.Add(certificateLife).Unix()),
	}
	cert.CriticalOptions = map[string]string{"force-command": c.forceCommand}
	if c.sources != "" {
		cert.CriticalOptions["source-address"] = c.sources
	}
	if c.forwards {
		cert.Extensions = map[string]string{"permit-port-forwarding": ""}
	}
	if err := cert.SignCert(rand.Reader, c.authority); err != nil {
		return nil, err
	}
	own, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, err
	}
	return ssh.NewCertSigner(cert, own)
}

// certified returns the keys to log in with now.
func (t Target) certified(signers []ssh.Signer) ([]ssh.Signer, error) {
	if t.Certificates == nil {
		return signers, nil
	}
	s, err := t.Certificates.signer(time.Now())
	if err != nil {
		return nil, fmt.Errorf("sign a certificate to log in with: %w", err)
	}
	return append([]ssh.Signer{s}, signers...), nil
}
