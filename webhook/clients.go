package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

const (
	// namesShown and nameShown bound what a message shows of a certificate: how many names, and bytes of each.
	namesShown, nameShown = 5, 100
	// dialTimeout is what a connection to this very process may take.
	dialTimeout = 10 * time.Second
)

// ClientNames returns an option for the TLS configuration by which a client's certificate must be for one of the names. It
// goes with ClientCA, without which no certificate is verified and each client is refused.
//
// A name is one of the DNS names and URIs that the certificate has as subject alternative names. They are compared byte by
// byte, and no name stands for others. The common name does not count: certificates have it for people.
func ClientNames(names []string) (func(*tls.Config), error) {
	if len(names) == 0 {
		return nil, errors.New("no name of a client is accepted")
	}
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "* \t\r\n") {
			return nil, fmt.Errorf("%q can't be the name of a client: it is a DNS name or a URI, in full", name)
		}
	}
	accepted := slices.Clone(names)
	return func(cfg *tls.Config) {
		// Unlike VerifyPeerCertificate it is also asked when a session is resumed.
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
				return errors.New("the client has shown no certificate that was verified")
			}
			return checkNames(state.PeerCertificates[0], accepted)
		}
	}, nil
}

func checkNames(cert *x509.Certificate, accepted []string) error {
	names := slices.Clone(cert.DNSNames)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(accepted, name) }) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("the client's certificate has no DNS name and no URI; its common name %s does not count", shown(cert.Subject.CommonName))
	}
	more := ""
	if len(names) > namesShown {
		more = fmt.Sprintf(" and %d more", len(names)-namesShown)
		names = names[:namesShown]
	}
	for i := range names {
		names[i] = shown(names[i])
	}
	return fmt.Errorf("the client's certificate is for %s%s, which is not accepted", strings.Join(names, ", "), more)
}

// shown quotes a name for a message.
func shown(name string) string {
	if len(name) > nameShown {
		name = strings.ToValidUTF8(name[:nameShown], "") + "…"
	}
	return fmt.Sprintf("%q", name)
}

// Listening returns a check that a TCP connection to address can be made. The check of controller-runtime's server makes a TLS
// connection without a certificate, which is refused and logged where clients must have one.
func Listening(address string) healthz.Checker {
	return func(r *http.Request) error {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			return fmt.Errorf("hooks are not served: %w", err)
		}
		return conn.Close()
	}
}
