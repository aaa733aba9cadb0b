package ui

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

//go:embed static
var static embed.FS

// maxConnections bounds how many there are at once. A browser has six.
const maxConnections = 128

// Listen listens on an address of the loopback interface of IPv4. It refuses others: who reaches the page sees what its server may see.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address with a port, such as 127.0.0.1:8080: %w", address, err)
	}
	if host != "127.0.0.1" && host != "localhost" {
		return nil, fmt.Errorf("%q is refused: the page is served on 127.0.0.1 only, since it shows what you may see in the management cluster; "+
			"from elsewhere reach it by a forwarded port, such as ssh -L", address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// Serve serves the page of a fleet until ctx ends. What is asked without the door's token is refused.
func Serve(ctx context.Context, l net.Listener, f *Fleet, d *Door) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: d.Guard(f.Handler()), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		f.Run(ctx)
	}()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = server.Close()
		<-ended
	}
	cancel()
	<-watching
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler serves the page and answers its questions, to whoever asks.
func (f *Fleet) Handler() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is built in
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.Handle("GET /api/", f.API())
	return mux
}
