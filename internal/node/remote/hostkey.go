package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// HostKeys recognizes hosts. It is made by KnownHosts, HostAuthorities or TrustOnFirstUse.
type HostKeys interface {
	// Algorithms lists what the host at address may prove itself with, best first. A host has several keys and shows one
	// that the client asks for: asking for a kind that we don't know would refuse a host that we do know.
	Algorithms(address string) []string
	// Check returns nil if key proves the host at address, a *HostKeyError otherwise. It is called before anything is sent.
	Check(address string, remote net.Addr, key ssh.PublicKey) error
	// Accepted is called with the key that Check has let pass, after authentication and before the first command. An error
	// closes the connection.
	Accepted(ctx context.Context, key ssh.PublicKey) error
}

var (
	plainAlgorithms = []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	}
	certificateAlgorithms = []string{
		ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
		ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
	}
)

// algorithmsOf lists the signatures that a key of a type can make. RSA keys sign with SHA-2 only.
func algorithmsOf(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// describe returns type and fingerprint of a key.
func describe(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

// RecordFunc keeps the key of a host, a line as in authorized_keys, for the next time.
type RecordFunc func(ctx context.Context, key string) error

type firstUse struct {
	known  ssh.PublicKey
	record RecordFunc
}

// TrustOnFirstUse recognizes a host by the key that it showed the first time. If recorded is empty, the first key is
// accepted and handed to record before any command is sent; if it can't be recorded, the connection is closed. Whoever
// can stand between us and the node that very first time goes unnoticed: prefer KnownHosts or HostAuthorities.
func TrustOnFirstUse(recorded string, record RecordFunc) (HostKeys, error) {
	if strings.TrimSpace(recorded) == "" {
		if record == nil {
			return nil, errors.New("trust on first use: nothing records the key")
		}
		return firstUse{record: record}, nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(recorded))
	if err != nil {
		return nil, fmt.Errorf("trust on first use: the recorded host key can't be read: %w", err)
	}
	return firstUse{known: key}, nil
}

func (f firstUse) Algorithms(string) []string {
	if f.known == nil {
		return slices.Clone(plainAlgorithms)
	}
	return algorithmsOf(f.known.Type())
}

func (f firstUse) Check(address string, _ net.Addr, key ssh.PublicKey) error {
	if f.known == nil || bytes.Equal(f.known.Marshal(), key.Marshal()) {
		return nil
	}
	return &HostKeyError{Host: address, Got: describe(key), Want: describe(f.known) + ", recorded at the first connection"}
}

func (f firstUse) Accepted(ctx context.Context, key ssh.PublicKey) error {
	if f.known != nil {
		return nil
	}
	if err := f.record(ctx, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))); err != nil {
		return fmt.Errorf("record the host key of the first connection: %w", err)
	}
	return nil
}

type hostAuthorities struct{ keys []ssh.PublicKey }

// HostAuthorities recognizes hosts by a certificate of one of the authorities, given as lines of authorized_keys. The
// certificate must name the host: one without principals would be good for every host, and is refused.
func HostAuthorities(authorizedKeys []byte) (HostKeys, error) {
	var h hostAuthorities
	for rest := authorizedKeys; len(bytes.TrimSpace(rest)) > 0; {
		key, _, _, next, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			return nil, fmt.Errorf("host authorities: key %d can't be read: %w", len(h.keys)+1, err)
		}
		h.keys, rest = append(h.keys, key), next
	}
	if len(h.keys) == 0 {
		return nil, errors.New("host authorities: there is none")
	}
	return h, nil
}

func (hostAuthorities) Algorithms(string) []string { return slices.Clone(certificateAlgorithms) }

func (h hostAuthorities) Check(address string, remote net.Addr, key ssh.PublicKey) error {
	checker := ssh.CertChecker{IsHostAuthority: func(authority ssh.PublicKey, _ string) bool {
		return slices.ContainsFunc(h.keys, func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), authority.Marshal()) })
	}}
	err := checker.CheckHostKey(address, remote, key)
	if cert, ok := key.(*ssh.Certificate); ok && err == nil && len(cert.ValidPrincipals) == 0 {
		err = errors.New("the certificate names no host")
	}
	if err == nil {
		return nil
	}
	authorities := make([]string, 0, len(h.keys))
	for _, k := range h.keys {
		authorities = append(authorities, ssh.FingerprintSHA256(k))
	}
	return &HostKeyError{
		Host: address, Got: describe(key), Reason: strings.TrimPrefix(err.Error(), "ssh: "),
		Want: "a host certificate of the authority " + strings.Join(authorities, " or "),
	}
}

func (hostAuthorities) Accepted(context.Context, ssh.PublicKey) error { return nil }
