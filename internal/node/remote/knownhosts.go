package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

type knownHosts struct {
	check ssh.HostKeyCallback
	lines [][]byte
}

// KnownHosts recognizes hosts by the bytes of a known_hosts file: names, hashed names, patterns, ports, @cert-authority
// and @revoked as OpenSSH has them.
func KnownHosts(data []byte) (HostKeys, error) {
	check, err := readKnownHosts(data)
	if err != nil {
		return nil, fmt.Errorf("known_hosts: %s", inPipe.ReplaceAllString(err.Error(), "line "))
	}
	return &knownHosts{check: check, lines: bytes.Split(data, []byte("\n"))}, nil
}

var inPipe = regexp.MustCompile(`^(knownhosts: )?/dev/fd/\d+:`)

// readKnownHosts hands data to a library that reads files only. It goes through a pipe: the server's file system is
// read-only in most clusters, and a temporary file would have to be cleaned up.
func readKnownHosts(data []byte) (ssh.HostKeyCallback, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer func() { _ = w.Close() }()
		// An error here means that the reader has stopped early, and it says why itself.
		_, _ = w.Write(data)
	}()
	check, err := knownhosts.New(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	_ = r.Close()
	<-written
	return check, err
}

// Algorithms puts the certificates of @cert-authority lines first.
func (k *knownHosts) Algorithms(address string) []string {
	var plain, certs []string
	for _, want := range k.wanted(address) {
		if k.isAuthority(want) {
			certs = certificateAlgorithms
			continue
		}
		for _, a := range algorithmsOf(want.Key.Type()) {
			if !slices.Contains(plain, a) {
				plain = append(plain, a)
			}
		}
	}
	all := append(slices.Clone(certs), plain...)
	if len(all) == 0 {
		// It will be refused; with a fingerprint, so that a person can go on from there.
		return slices.Clone(plainAlgorithms)
	}
	return all
}

// Check implements HostKeys.
func (k *knownHosts) Check(address string, remote net.Addr, key ssh.PublicKey) error {
	err := k.check(address, remote, key)
	if err == nil {
		return nil
	}
	refused := &HostKeyError{Host: address, Got: describe(key), Want: k.describeWanted(address)}
	var (
		mismatch *knownhosts.KeyError
		revoked  *knownhosts.RevokedError
	)
	switch {
	case errors.As(err, &revoked):
		refused.Reason = fmt.Sprintf("known_hosts line %d revokes this key", revoked.Revoked.Line)
	case errors.As(err, &mismatch) && len(mismatch.Want) == 0:
		refused.Reason = "known_hosts has no line for this host"
	case errors.As(err, &mismatch):
	default:
		refused.Reason = strings.TrimPrefix(err.Error(), "ssh: ")
	}
	return refused
}

// Accepted implements HostKeys.
func (*knownHosts) Accepted(context.Context, ssh.PublicKey) error { return nil }

// wanted asks with a key that nobody has: the refusal lists the lines for the host.
func (k *knownHosts) wanted(address string) []knownhosts.KnownKey {
	var refused *knownhosts.KeyError
	if err := k.check(address, &net.TCPAddr{IP: net.IPv4zero}, nobodysKey{}); errors.As(err, &refused) {
		return refused.Want
	}
	return nil
}

func (k *knownHosts) isAuthority(want knownhosts.KnownKey) bool {
	return want.Line >= 1 && want.Line <= len(k.lines) &&
		bytes.HasPrefix(bytes.TrimSpace(k.lines[want.Line-1]), []byte("@cert-authority"))
}

func (k *knownHosts) describeWanted(address string) string {
	var want []string
	for _, w := range k.wanted(address) {
		kind := ""
		if k.isAuthority(w) {
			kind = "a certificate of "
		}
		want = append(want, fmt.Sprintf("%s%s (known_hosts line %d)", kind, describe(w.Key), w.Line))
	}
	if len(want) == 0 {
		return "a host that known_hosts lists"
	}
	return strings.Join(want, " or ")
}

// nobodysKey is a key that is equal to no other.
type nobodysKey struct{}

func (nobodysKey) Type() string                        { return "" }
func (nobodysKey) Marshal() []byte                     { return nil }
func (nobodysKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }
