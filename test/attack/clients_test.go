package attack_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/webhook"
)

// authority signs clients' certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key: key, cert: cert}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) sign(t *testing.T, cert x509.Certificate) []tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert.SerialNumber, cert.NotBefore = big.NewInt(2), time.Now().Add(-time.Hour)
	if cert.NotAfter.IsZero() {
		cert.NotAfter = time.Now().Add(time.Hour)
	}
	if cert.ExtKeyUsage == nil {
		cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, &cert, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
}

func TestACallerWithoutAnAcceptedCertificateIsRefused(t *testing.T) {
	const manager = "capi-controller-manager.capi-system"
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	_, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	file := filepath.Join(dir, "client-ca.crt")
	require.NoError(t, os.WriteFile(file, ca.pem(), 0o600))
	clientCA, err := webhook.ClientCA(t.Context(), file)
	require.NoError(t, err)
	names, err := webhook.ClientNames([]string{manager})
	require.NoError(t, err)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir, TLSOpts: []func(*tls.Config){clientCA, names}})
	hooks, err := webhook.NewServer(logr.Discard(), webhook.NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	var asked atomic.Int32
	require.NoError(t, hooks.Register(server, []webhook.Hook{{
		Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: time.Minute,
		Handle: func(context.Context, []byte) runtimehooksv1.ResponseObject {
			asked.Add(1)
			r := &runtimehooksv1.CanUpdateMachineResponse{}
			r.Status = runtimehooksv1.ResponseStatusSuccess
			return r
		},
	}}))
	done := make(chan error, 1)
	go func() { done <- server.Start(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-done) })
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	require.Eventually(t, func() bool { return webhook.Listening(address)(&http.Request{}) == nil }, time.Minute, 10*time.Millisecond)

	call := func(path string, certs []tls.Certificate, newest uint16) (string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs, MaxVersion: newest}}
		defer transport.CloseIdleConnections()
		r, err := (&http.Client{Transport: transport}).Post("https://"+address+"/hooks.runtime.cluster.x-k8s.io/v1alpha1/"+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		defer r.Body.Close() //nolint:errcheck // it was only read
		body, err := io.ReadAll(r.Body)
		return string(body), err
	}
	const hook, discovery = "canupdatemachine/can-update-machine", "discovery"
	signed := func(a *authority, cert x509.Certificate) []tls.Certificate { return a.sign(t, cert) }
	for name, certs := range map[string][]tls.Certificate{
		"none":                                    nil,
		"another name by the same authority":      signed(ca, x509.Certificate{DNSNames: []string{"tenant.fleet"}}),
		"the name as common name":                 signed(ca, x509.Certificate{Subject: pkix.Name{CommonName: manager}}),
		"a pattern that the name would match":     signed(ca, x509.Certificate{DNSNames: []string{"*.capi-system"}}),
		"the name by another authority":           signed(other, x509.Certificate{DNSNames: []string{manager}}),
		"the name in a certificate that is over":  signed(ca, x509.Certificate{DNSNames: []string{manager}, NotAfter: time.Now().Add(-time.Minute)}),
		"the name in a certificate for a server":  signed(ca, x509.Certificate{DNSNames: []string{manager}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
		"the authority's own, which has no names": {{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{hook, discovery} {
				for _, newest := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
					_, err := call(path, certs, newest)
					require.Error(t, err)
				}
			}
			require.Zero(t, asked.Load())
		})
	}
	body, err := call(hook, signed(ca, x509.Certificate{DNSNames: []string{manager}}), tls.VersionTLS13)
	require.NoError(t, err)
	require.Contains(t, body, `"status":"Success"`)
	require.EqualValues(t, 1, asked.Load())
}
