// Package staticpodtest stands in for a kubeadm node in tests: a directory with its files, and servers that answer as the API server and
// the kubelet would.
package staticpodtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its certificate, KeyPEM its key.
	PEM, KeyPEM []byte
}

// NewAuthority returns one of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.PEM, a.KeyPEM = encode(t, der, a.key)
	return a
}

// Issue returns a certificate and its key for a name, with more names and addresses.
func (a *Authority) Issue(commonName string, sans ...string) (cert, key []byte) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, san)
		}
	}
	k := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	require.NoError(a.t, err)
	return encode(a.t, der, k)
}

// Serve starts a server on loopback that takes clients of the authority only. The pair is asked for at each connection.
func (a *Authority) Serve(handler http.Handler, pair func() (tls.Certificate, error)) *httptest.Server {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			p, err := pair()
			return &p, err
		},
	}
	s.Config.ErrorLog = nil
	s.StartTLS()
	s.TLS.Certificates = nil // httptest's own
	a.t.Cleanup(s.Close)
	return s
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func encode(t testing.TB, der []byte, key *ecdsa.PrivateKey) (certPEM, keyPEM []byte) {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
