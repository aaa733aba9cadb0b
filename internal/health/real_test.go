//go:build prometheus

package health

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// authority signs certificates for 127.0.0.1 and for clients.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	require.NoError(t, err)
	a.pem = block("CERTIFICATE", der)
	return a
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// sign returns a certificate and its key.
func (a *authority) sign() (cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &private.PublicKey, a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(a.t, err)
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER)
}

// startPrometheus starts Prometheus, which scrapes a target each second and lets in who shows a certificate of the authority. It returns its URL.
func startPrometheus(t *testing.T, ca *authority, target string) string {
	program := os.Getenv("PROMETHEUS")
	require.NotEmpty(t, program, "make test-prometheus says where it is")
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	cert, key := ca.sign()
	write("tls.crt", cert)
	write("tls.key", key)
	write("ca.crt", ca.pem)
	config := write("prometheus.yml", `
global: {scrape_interval: 1s}
scrape_configs: [{job_name: shop, static_configs: [{targets: ["`+target+`"]}]}]
`)
	web := write("web.yml", `
tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert}
`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+config, "--web.config.file="+web, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return "https://" + address
}

// TestARealPrometheus asks one that scrapes a value, which comes to be too large and then is gone.
func TestARealPrometheus(t *testing.T) {
	var ratio atomic.Value
	ratio.Store("error_ratio 0.002\n")
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = fmt.Fprint(w, ratio.Load())
	}))
	t.Cleanup(target.Close)
	ca := newAuthority(t)
	url := startPrometheus(t, ca, target.Listener.Addr().String())
	cert, key := ca.sign()
	sources := secrets(t, map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": ca.pem})
	becomes := func(state refitv1.GateState, says string, edits ...edit) {
		t.Helper()
		var last Answer
		require.Eventually(t, func() bool {
			last = ask(t, errorRatio(url, append(edits, withSecret)...), sources)
			return last.State == state
		}, 2*time.Minute, 500*time.Millisecond, "%+v", &last)
		require.Contains(t, last.Says, says)
	}
	query := func(text string) edit { return func(g *refitv1.HealthGate) { g.Prometheus.Query = text } }

	becomes(refitv1.GatePassing, "")
	becomes(refitv1.GatePassing, "", query("scalar(error_ratio)"))
	becomes(refitv1.GateUnknown, "is a matrix", query("error_ratio[1m]"))
	becomes(refitv1.GateUnknown, "bad_data: ", query("error_ratio{"))
	becomes(refitv1.GateUnknown, "it answers with a warning: ", query("quantile(2, error_ratio)"))
	becomes(refitv1.GateUnknown, "no_such_thing has no result", query("no_such_thing"))
	becomes(refitv1.GateUnknown, "without a number, NaN", query("error_ratio * NaN"))
	becomes(refitv1.GatePassing, "", query(`ALERTS{alertstate="firing"}`), func(g *refitv1.HealthGate) {
		g.Prometheus.MustBe = refitv1.Comparison{Operator: refitv1.Equal, Value: "0"}
		g.Prometheus.OnEmpty = refitv1.IgnoreOnUnknown
	})

	stranger := ask(t, errorRatio(url, withSecret), secrets(t, map[string]string{"ca.crt": ca.pem}))
	require.Equal(t, refitv1.GateUnknown, stranger.State)
	require.Contains(t, stranger.Says, "certificate required")

	asker := newRealAsker(t, sources)
	gates, err := Compile([]refitv1.HealthGate{errorRatio(url, withSecret, func(g *refitv1.HealthGate) { g.Interval, g.Timeout = "10s", "5s" })})
	require.NoError(t, err)
	answer, err := asker.Ask(t.Context(), policyA, gates[0], "c1", time.Now())
	require.NoError(t, err)
	require.Equal(t, refitv1.GatePassing, answer.State, answer.Says)
	_, fresh := asker.Latest(policyA, gates[0], "c1")
	require.True(t, fresh)

	ratio.Store("error_ratio 0.031\n")
	require.Eventually(t, func() bool {
		answer, fresh = asker.Latest(policyA, gates[0], "c1")
		return fresh && answer.State == refitv1.GateFailing
	}, time.Minute, 100*time.Millisecond)
	require.Regexp(t, `^error_ratio is 0.031 for error_ratio\{instance="127.0.0.1:\d+", job="shop"\}, and has to be LessThan 0.01$`, answer.Says)

	ratio.Store("")
	becomes(refitv1.GateUnknown, "error_ratio has no result")
}

// newRealAsker returns an Asker that runs, by the wall clock.
func newRealAsker(t *testing.T, sources *Sources) *Asker {
	asker := NewAsker(*sources, clock.RealClock{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = asker.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return asker
}
