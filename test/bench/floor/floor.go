// Package floor is a server of hooks that reads each request and answers Success without a look at it: what no server of hooks can be faster than, or take
// less than.
package floor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// Name is that of the command that starts the server.
const Name = "floor"

// Answer is what is answered, unless something else is asked for.
const Answer = `{"status":"Success"}`

// NewCommand returns the command that starts the server.
func NewCommand() *cobra.Command {
	var port, certs, health, answer string
	c := &cobra.Command{
		Use: Name, Hidden: true, Args: cobra.NoArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // refit's flags
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), port, certs, health, answer) },
	}
	c.Flags().StringVar(&port, "webhook-port", "", "Port of 127.0.0.1.")
	c.Flags().StringVar(&certs, "webhook-cert-dir", "", "Directory of tls.crt and tls.key.")
	c.Flags().StringVar(&health, "health-addr", "", "Address that tells that it is ready.")
	c.Flags().StringVar(&answer, "answer", Answer, "What is answered.")
	return c
}

func serve(ctx context.Context, port, certs, health, text string) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	})
	hooks := &http.Server{Addr: net.JoinHostPort("127.0.0.1", port), Handler: answer, ReadHeaderTimeout: time.Minute}
	ready := &http.Server{Addr: health, Handler: answer, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() {
		_ = hooks.Close()
		_ = ready.Close()
	})()
	var both errgroup.Group
	both.Go(func() error {
		return hooks.ListenAndServeTLS(filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"))
	})
	both.Go(ready.ListenAndServe)
	if err := both.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
