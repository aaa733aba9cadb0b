package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// TestTheListenerTellsWhomItRefuses has a client without a certificate call: an operator finds it in the log.
func TestTheListenerTellsWhomItRefuses(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	_, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	caFile := filepath.Join(dir, "client-ca.crt")
	require.NoError(t, os.WriteFile(caFile, newAuthority(t).pem, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	clientCA, err := ClientCA(ctx, caFile)
	require.NoError(t, err)

	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	server := NewListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir, TLSOpts: []func(*tls.Config){clientCA}}, log)
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, time.Minute, 10*time.Millisecond)

	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil { // TLS 1.3 tells a client with its first read
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	require.Error(t, err)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		said := strings.Join(lines, "\n")
		return strings.Contains(said, "Refused a connection") && strings.Contains(said, "client didn't provide a certificate")
	}, time.Minute, 10*time.Millisecond)
}
