package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
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
	names, err := namesOf(cert)
	if err != nil {
		return err
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

// subjectAltName is the extension with the names that a certificate is for, and dnsName and uri are their kinds (RFC 5280, 4.2.1.6).
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

const dnsName, uri = 2, 6

// namesOf returns the DNS names and URIs of a certificate as they stand there: a URI that was parsed and written again may be
// another one.
func namesOf(cert *x509.Certificate) ([]string, error) {
	var names []string
	for _, extension := range cert.Extensions {
		if !extension.Id.Equal(subjectAltName) {
			continue
		}
		var all asn1.RawValue
		if rest, err := asn1.Unmarshal(extension.Value, &all); err != nil || len(rest) > 0 {
			return nil, errors.New("the client's certificate has names that can't be read")
		}
		for rest := all.Bytes; len(rest) > 0; {
			var name asn1.RawValue
			var err error
			if rest, err = asn1.Unmarshal(rest, &name); err != nil {
				return nil, errors.New("the client's certificate has names that can't be read")
			}
			if name.Class == asn1.ClassContextSpecific && (name.Tag == dnsName || name.Tag == uri) {
				names = append(names, string(name.Bytes))
			}
		}
	}
	return names, nil
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
