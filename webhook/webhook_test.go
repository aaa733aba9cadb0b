package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

func success(message string) runtimehooksv1.ResponseObject {
	r := &runtimehooksv1.CanUpdateMachineResponse{}
	r.Status, r.Message = runtimehooksv1.ResponseStatusSuccess, message
	return r
}

// serving registers a handler for CanUpdateMachine, and returns what serves it and its metrics.
func serving(t *testing.T, handle func(context.Context, []byte) runtimehooksv1.ResponseObject) (http.Handler, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	s, err := NewServer(logr.Discard(), NewMetrics(reg))
	require.NoError(t, err)
	s.limit = 1 << 20
	on := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	require.NoError(t, s.Register(on, []Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: 10 * time.Second, Handle: handle},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", Timeout: 7 * time.Second, Handle: handle},
	}))
	return on.WebhookMux(), reg
}

const canUpdatePath = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachine/can-update-machine"

func call(h http.Handler, method, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(body)))
	return w
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		method, body    string
		handle          func(context.Context, []byte) runtimehooksv1.ResponseObject
		status, message string
	}{
		"the handler's answer": {
			"POST", "hello", func(_ context.Context, b []byte) runtimehooksv1.ResponseObject { return success("got " + string(b)) },
			"Success", "got hello",
		},
		"a message with control characters": {
			"POST", "\x1b[31mred\x07", func(_ context.Context, b []byte) runtimehooksv1.ResponseObject { return success("got\t" + string(b)) },
			"Success", "got\t\ufffd[31mred\ufffd",
		},
		"a panic": {"POST", "", func(context.Context, []byte) runtimehooksv1.ResponseObject { panic("secret") }, "Failure", "internal error"},
		"no status": {"POST", "", func(context.Context, []byte) runtimehooksv1.ResponseObject {
			return &runtimehooksv1.CanUpdateMachineResponse{}
		}, "Failure", "internal error"},
		"too large": {"POST", strings.Repeat("x", 1<<20+1), nil, "Failure", "larger than 1 MiB"},
		"a GET":     {"GET", "", nil, "Failure", "should be POST"},
		"too deep":  {"POST", strings.Repeat("[", 1<<20), nil, "Failure", "refit reads 100 at most"},
		"too many":  {"POST", "[" + strings.Repeat("1,", 500_000), nil, "Failure", "values, and refit reads"},
	} {
		t.Run(name, func(t *testing.T) {
			h, reg := serving(t, tc.handle)
			w := call(h, tc.method, canUpdatePath, []byte(tc.body))
			require.Equal(t, http.StatusOK, w.Code)
			var r runtimehooksv1.CanUpdateMachineResponse
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
			require.Equal(t, tc.status, string(r.Status))
			require.Contains(t, r.Message, tc.message)
			require.NotContains(t, r.Message, "secret")
			n, err := testutil.GatherAndCount(reg, "refit_hook_request_duration_seconds")
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

// TestDiscoveryReadsNoDeeperThanHooks: the bytes that end a parser are not looked at there either.
func TestDiscoveryReadsNoDeeperThanHooks(t *testing.T) {
	h, _ := serving(t, nil)
	w := call(h, "POST", "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery", []byte(strings.Repeat("[", 1<<20)))
	var r runtimehooksv1.DiscoveryResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.Status)
}

func TestDiscovery(t *testing.T) {
	h, _ := serving(t, nil)
	w := call(h, "POST", "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery", []byte(`{}`))
	var r runtimehooksv1.DiscoveryResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.Status)
	require.Len(t, r.Handlers, 2)
	for _, handler := range r.Handlers {
		require.Equal(t, runtimehooksv1.FailurePolicyFail, *handler.FailurePolicy, "Ignore would replace machines")
	}
	require.Equal(t, int32(10), *r.Handlers[0].TimeoutSeconds)
	require.Equal(t, int32(7), *r.Handlers[1].TimeoutSeconds)
	require.Equal(t, "CanUpdateMachine", r.Handlers[0].RequestHook.Hook)
}

func TestNamesAreUnique(t *testing.T) {
	s, err := NewServer(logr.Discard(), NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	err = s.Register(ctrlwebhook.NewServer(ctrlwebhook.Options{}), []Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "x"}, {Hook: runtimehooksv1.UpdateMachine, Name: "x"},
	})
	require.ErrorContains(t, err, `two hooks are named "x"`)
}

// authority is a certificate authority for clients.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) client(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestTLS serves with self-signed certificates, asks for client certificates, and exchanges both authority and serving
// certificate while it serves.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	bundle, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	first, second := newAuthority(t), newAuthority(t)
	caFile := filepath.Join(dir, "client-ca.crt")
	require.NoError(t, os.WriteFile(caFile, first.pem, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	clientCA, err := ClientCA(ctx, caFile)
	require.NoError(t, err)

	port := freePort(t)
	server := NewListener(ctrlwebhook.Options{
		Host: "127.0.0.1", Port: port, CertDir: dir,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }, clientCA},
	}, logr.Discard())
	s, err := NewServer(logr.Discard(), NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	require.NoError(t, s.Register(server, []Hook{{
		Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine",
		Handle: func(context.Context, []byte) runtimehooksv1.ResponseObject { return success("") },
	}}))
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()

	post := func(bundle []byte, newest uint16, certs ...tls.Certificate) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs, MaxVersion: newest}}
		defer transport.CloseIdleConnections()
		url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + canUpdatePath
		r, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Post(url, "application/json", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		return r.Body.Close()
	}
	eventually := func(f func() error) {
		require.Eventually(t, func() bool { return f() == nil }, 5*time.Minute, 50*time.Millisecond)
	}

	eventually(func() error { return post(bundle, 0, first.client(t)) })
	require.Error(t, post(bundle, 0), "a client without certificate")
	require.Error(t, post(bundle, 0, second.client(t)), "a client of another authority")
	require.Error(t, post(bundle, tls.VersionTLS11, first.client(t)), "TLS 1.1")

	require.NoError(t, os.WriteFile(caFile, second.pem, 0o600))
	eventually(func() error { return post(bundle, 0, second.client(t)) })
	require.Error(t, post(bundle, 0, first.client(t)), "the authority that was taken away")

	renewed, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	eventually(func() error { return post(renewed, 0, second.client(t)) })
}

// TestShutdown ends the server while a hook is under way: it is answered.
func TestShutdown(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	bundle, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	server := NewListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir}, logr.Discard())
	s, err := NewServer(logr.Discard(), NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	underWay, goOn := make(chan struct{}), make(chan struct{})
	require.NoError(t, s.Register(server, []Hook{{
		Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine",
		Handle: func(context.Context, []byte) runtimehooksv1.ResponseObject {
			close(underWay)
			<-goOn
			return success("answered")
		},
	}}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, time.Minute, 10*time.Millisecond)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	answer := make(chan string, 1)
	go func() {
		r, err := client.Post("https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port))+canUpdatePath, "application/json", strings.NewReader("{}"))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close() //nolint:errcheck // it was only read
		body, _ := io.ReadAll(r.Body)
		answer <- string(body)
	}()
	<-underWay
	stop()
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) != nil }, time.Minute, 10*time.Millisecond, "the server takes no more")
	close(goOn)
	require.Contains(t, <-answer, "answered")
	require.NoError(t, <-ended)
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // it was never used
	return l.Addr().(*net.TCPAddr).Port
}

// TestHooksAreRefusedAtOnceUntilThereIsSomethingToAnswerFrom: whoever waits for an answer keeps what it holds meanwhile.
func TestHooksAreRefusedAtOnceUntilThereIsSomethingToAnswerFrom(t *testing.T) {
	s, err := NewServer(logr.Discard(), NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	starting := errors.New("the caches are not filled yet")
	s.OnlyWhen(func() error { return starting })
	on := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	require.NoError(t, s.Register(on, []Hook{{
		Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: 10 * time.Second,
		Handle: func(context.Context, []byte) runtimehooksv1.ResponseObject { return success("yes") },
	}}))
	answer := call(on.WebhookMux(), "POST", canUpdatePath, []byte("{}")).Body.String()
	require.Contains(t, answer, `"status":"Failure"`)
	require.Contains(t, answer, "refit has just started: the caches are not filled yet; ask again")
	require.Contains(t, call(on.WebhookMux(), "POST", "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery", []byte("{}")).Body.String(), `"status":"Success"`, "Cluster API's managers end when they can't discover")

	starting = nil
	require.Contains(t, call(on.WebhookMux(), "POST", canUpdatePath, []byte("{}")).Body.String(), "yes")
}
