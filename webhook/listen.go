package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// The bounds of connections.
const (
	// MaxConnections is how many connections there are at once. A manager has a few.
	MaxConnections = 512
	// maxStreams is how many requests an HTTP/2 connection carries at once.
	maxStreams = 100
	// maxUnread is what a connection may send that no handler has read yet, in bytes.
	maxUnread = 128 << 10
	// maxHeader bounds the headers of a request, in bytes. Those of managers have some hundred.
	maxHeader = 16 << 10
	// headerTimeout is how long a TLS handshake, and the headers of a request, may take.
	headerTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept for the next request. Go's clients keep theirs as long.
	idleTimeout = 90 * time.Second
	// shutdownTimeout is how long requests under way are waited for at the end.
	shutdownTimeout = time.Minute
)

// listener is controller-runtime's webhook server with bounds on its connections, which that one has no options for.
type listener struct {
	ctrlwebhook.Server // the handlers

	options ctrlwebhook.Options
	log     logr.Logger
	open    *connections
	serving atomic.Bool
}

// NewListener returns controller-runtime's webhook server, which serves what is registered with it over HTTPS, with bounds on how
// many connections there are, and on how long they may take to say what they want. It does not look at options.ClientCAName:
// ClientCA does more.
func NewListener(options ctrlwebhook.Options, log logr.Logger) ctrlwebhook.Server {
	return newListener(options, log, MaxConnections)
}

// NewAdmissionListener returns the same for what NewAdmission returns, with fewer connections: an API server has one.
func NewAdmissionListener(options ctrlwebhook.Options, log logr.Logger) ctrlwebhook.Server {
	return newListener(options, log, maxAdmissionConnections)
}

func newListener(options ctrlwebhook.Options, log logr.Logger, connections int) ctrlwebhook.Server {
	if options.Port == 0 {
		options.Port = ctrlwebhook.DefaultPort
	}
	return &listener{Server: ctrlwebhook.NewServer(options), options: options, log: log, open: newConnections(connections)}
}

var _ ctrlwebhook.Server = (*listener)(nil)

// Start implements ctrlwebhook.Server. It serves until ctx ends and requests under way are answered.
func (l *listener) Start(ctx context.Context) error {
	cfg, err := l.tls(ctx)
	if err != nil {
		return err
	}
	on, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(l.options.Host, strconv.Itoa(l.options.Port)))
	if err != nil {
		return fmt.Errorf("serve hooks: %w", err)
	}
	server := &http.Server{
		// Requests under way are answered when ctx ends.
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:       withConnection,
		Handler:           l.WebhookMux(),
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread,
			WriteByteTimeout: writeTimeout,
		},
		ErrorLog: log.New(NewHandshakeLog(l.log, clock.RealClock{}), "", 0),
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		l.serving.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		ended <- server.Shutdown(ctx)
	}()
	l.serving.Store(true)
	l.log.Info("Serving hooks", "address", on.Addr().String())
	if err := server.Serve(tls.NewListener(l.open.limit(on), cfg)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve hooks: %w", err)
	}
	if err := <-ended; err != nil {
		l.log.Error(err, "Requests were under way at the end")
	}
	return nil
}

// tls returns the configuration of TLS, with a certificate that is read again when it changes.
func (l *listener) tls(ctx context.Context) (*tls.Config, error) {
	cfg := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	for _, option := range l.options.TLSOpts {
		option(cfg)
	}
	if cfg.GetCertificate != nil {
		return cfg, nil
	}
	file := func(name, otherwise string) string {
		if name == "" {
			name = otherwise
		}
		return filepath.Join(l.options.CertDir, name)
	}
	watcher, err := certwatcher.New(file(l.options.CertName, "tls.crt"), file(l.options.KeyName, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	cfg.GetCertificate = watcher.GetCertificate
	go func() {
		if err := watcher.Start(ctx); err != nil {
			l.log.Error(err, "The serving certificate is not read again when it changes")
		}
	}()
	return cfg, nil
}

// StartedChecker implements ctrlwebhook.Server. It makes no connection, so that nobody who takes all of them can have the server
// taken for broken.
func (l *listener) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !l.serving.Load() {
			return errors.New("hooks are not served")
		}
		return nil
	}
}
