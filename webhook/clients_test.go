package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	stdlog "log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// clientFor returns a client's certificate with the names.
func (a authority) clientFor(t *testing.T, cert x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = big.NewInt(3), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, &cert, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// guarded serves "ok" over TLS with the options, and logs what was refused to the returned buffer.
func guarded(t *testing.T, options ...func(*tls.Config)) (*httptest.Server, *bytes.Buffer) {
	t.Helper()
	refused := &bytes.Buffer{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	dir := t.TempDir()
	_, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	require.NoError(t, err)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
	for _, option := range options {
		option(server.TLS)
	}
	server.Config.ErrorLog = stdlog.New(refused, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, refused
}

// ask makes a connection of its own with the certificate.
func ask(server *httptest.Server, cfg *tls.Config) error {
	cfg.InsecureSkipVerify = true // it is about the client
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

func TestClientNames(t *testing.T) {
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca.pem, 0o600))
	clientCA, err := ClientCA(t.Context(), file)
	require.NoError(t, err)
	names, err := ClientNames([]string{"core.capi-system", "spiffe://example.org/kcp"})
	require.NoError(t, err)

	uris := func(s string) []*url.URL {
		u, err := url.Parse(s)
		require.NoError(t, err)
		return []*url.URL{u}
	}
	many := make([]string, 7)
	for i := range many {
		many[i] = fmt.Sprintf("n%d", i)
	}
	for name, tc := range map[string]struct {
		cert x509.Certificate
		says string // empty: it is accepted
	}{
		"an accepted DNS name":              {x509.Certificate{DNSNames: []string{"core.capi-system"}}, ""},
		"an accepted URI":                   {x509.Certificate{URIs: uris("spiffe://example.org/kcp")}, ""},
		"an accepted name among others":     {x509.Certificate{DNSNames: []string{"x", "core.capi-system"}}, ""},
		"another name":                      {x509.Certificate{DNSNames: []string{"tenant"}}, `is for "tenant", which is not accepted`},
		"another URI":                       {x509.Certificate{URIs: uris("spiffe://example.org/kcp/x")}, `"spiffe://example.org/kcp/x"`},
		"a URI with an empty fragment":      {x509.Certificate{ExtraExtensions: []pkix.Extension{rawURI(t, "spiffe://example.org/kcp#")}}, "is not accepted"},
		"a URI whose scheme is in capitals": {x509.Certificate{ExtraExtensions: []pkix.Extension{rawURI(t, "SPIFFE://example.org/kcp")}}, "is not accepted"},
		"an accepted URI in raw":            {x509.Certificate{ExtraExtensions: []pkix.Extension{rawURI(t, "spiffe://example.org/kcp")}}, ""},
		"other letters":                     {x509.Certificate{DNSNames: []string{"Core.capi-system"}}, "is not accepted"},
		"a beginning":                       {x509.Certificate{DNSNames: []string{"core"}}, "is not accepted"},
		"a pattern":                         {x509.Certificate{DNSNames: []string{"*.capi-system"}}, "is not accepted"},
		"the name as common name only":      {x509.Certificate{Subject: pkix.Name{CommonName: "core.capi-system"}}, `its common name "core.capi-system" does not count`},
		"the name as e-mail address":        {x509.Certificate{EmailAddresses: []string{"core.capi-system"}}, "no DNS name and no URI"},
		"a long name that breaks the line":  {x509.Certificate{URIs: uris("x:" + strings.Repeat("a", 3000))}, `aaa…"`},
		"many names":                        {x509.Certificate{DNSNames: many}, `"n4" and 2 more`},
	} {
		for order, options := range map[string][]func(*tls.Config){"authority first": {clientCA, names}, "names first": {names, clientCA}} {
			t.Run(name+", "+order, func(t *testing.T) {
				server, refused := guarded(t, options...)
				err := ask(server, &tls.Config{Certificates: []tls.Certificate{ca.clientFor(t, tc.cert)}})
				if tc.says == "" {
					require.NoError(t, err)
					return
				}
				require.Error(t, err)
				server.Close() // it has logged
				require.Contains(t, refused.String(), tc.says)
				require.Less(t, refused.Len(), 1000)
			})
		}
	}
}

// rawURI is a URI among a certificate's names as it is given, which url.URL may write in another way.
func rawURI(t *testing.T, name string) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: uri, Bytes: []byte(name)}})
	require.NoError(t, err)
	return pkix.Extension{Id: subjectAltName, Value: value}
}

// TestClientNamesWithoutAnAuthority: what nobody has verified is not accepted, whatever it says.
func TestClientNamesWithoutAnAuthority(t *testing.T) {
	names, err := ClientNames([]string{"core"})
	require.NoError(t, err)
	anybody := func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }
	server, _ := guarded(t, anybody, names)
	require.Error(t, ask(server, &tls.Config{}))
	require.Error(t, ask(server, &tls.Config{Certificates: []tls.Certificate{newAuthority(t).clientFor(t, x509.Certificate{DNSNames: []string{"core"}})}}))
}

// TestSessionsAreNotResumed: with a session from before, a client would not be verified by today's authorities.
func TestSessionsAreNotResumed(t *testing.T) {
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca.pem, 0o600))
	clientCA, err := ClientCA(t.Context(), file)
	require.NoError(t, err)
	server, _ := guarded(t, clientCA)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{
			Certificates: []tls.Certificate{ca.client(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(8), MaxVersion: version,
		}
		resumed := false
		cfg.VerifyConnection = func(s tls.ConnectionState) error { resumed = resumed || s.DidResume; return nil }
		for range 3 {
			require.NoError(t, ask(server, cfg))
		}
		require.False(t, resumed)
	}
}

func TestClientNamesThatCanNotBe(t *testing.T) {
	for _, names := range [][]string{nil, {}, {""}, {"core", ""}, {"*"}, {"*.capi-system"}, {" core"}, {"a b"}} {
		_, err := ClientNames(names)
		require.Error(t, err, "%q", names)
	}
}

func TestListening(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	check := Listening(server.Listener.Addr().String())
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	require.NoError(t, check(request))
	server.Close()
	require.ErrorContains(t, check(request), "hooks are not served")
}

func TestHandshakeLog(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 10, 3, 18, 0, 0, 0, time.UTC))
	h := NewHandshakeLog(log, now)
	std := stdlog.New(h, "", 0)

	for i := range 1000 {
		std.Printf("http: TLS handshake error from 10.0.0.1:%d: tls: client didn't provide a certificate", 1024+i)
	}
	require.Len(t, lines, 5)
	require.Contains(t, lines[0], `"from"="10.0.0.1"`)
	require.Contains(t, lines[0], `"reason"="tls: client didn't provide a certificate"`)
	std.Print(`http: TLS handshake error from [fd00::2]:44: the client's certificate is for "x", which is not accepted`)
	require.Len(t, lines, 6, "another host has lines of its own")
	require.Contains(t, lines[5], `"from"="fd00::2"`)
	now.SetTime(now.Now().Add(time.Minute))
	std.Print("http: TLS handshake error from 10.0.0.1:99: remote error")
	require.Len(t, lines, 7)
	require.Contains(t, lines[6], `"notLogged"=995`)

	std.Print("http: TLS handshake error from 10.0.0.3:99: EOF")
	require.Len(t, lines, 7, "a look whether the port is open")
	std.Print("http: Accept error: too many open files")
	require.Contains(t, lines[7], "too many open files")
	for i := range 5000 {
		std.Printf("http: TLS handshake error from 10.1.%d.%d:99: x", i/250, i%250)
	}
	require.LessOrEqual(t, len(h.hosts), hostsKnown)
}

func TestClientCertificatesRequiredIsMeasured(t *testing.T) {
	for required, want := range map[bool]string{true: "1", false: "0"} {
		reg := prometheus.NewRegistry()
		NewClientCertificatesRequired(reg, required)
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
			"# HELP refit_hook_client_certificates_required 1 if hooks are answered to clients with an accepted certificate only, 0 if to anybody who reaches the port.\n"+
				"# TYPE refit_hook_client_certificates_required gauge\nrefit_hook_client_certificates_required "+want+"\n")))
	}
}
