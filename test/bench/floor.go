package main

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

// floorCommand starts a server that reads each request and answers Success without a look at it: what no server of hooks can be faster than.
const floorCommand = "floor"

// floorAnswer is that answer.
const floorAnswer = `{"status":"Success"}`

func newFloorCommand() *cobra.Command {
	var port, certs, health string
	c := &cobra.Command{
		Use: floorCommand, Hidden: true, Args: cobra.NoArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // refit's flags
		RunE: func(cmd *cobra.Command, _ []string) error { return serveFloor(cmd.Context(), port, certs, health) },
	}
	c.Flags().StringVar(&port, "webhook-port", "", "Port of 127.0.0.1.")
	c.Flags().StringVar(&certs, "webhook-cert-dir", "", "Directory of tls.crt and tls.key.")
	c.Flags().StringVar(&health, "health-addr", "", "Address that tells that it is ready.")
	return c
}

func serveFloor(ctx context.Context, port, certs, health string) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, floorAnswer)
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
