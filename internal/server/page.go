package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capi-refit/refit/internal/ui"
)

// pageFlags say whether and where the page of refit ui is served, too.
type pageFlags struct {
	serve   bool
	address string
}

func (f *pageFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.serve, "ui", false, "Serve the page of refit ui over HTTPS to all who may get the path /ui/* of the API server, by the tokens that it knows: docs/ui.md. It shows what refit sees. It takes as much memory again as the page does.")
	fs.StringVar(&f.address, "ui-address", ":9445", "Address on which --ui serves, with the certificate of the hooks.")
}

// maxPageConnections bounds how many there are at once.
const maxPageConnections = 256

// addPage has the manager serve the page. Each replica does: no leader is needed to look.
func (o *options) addPage(ctx context.Context, mgr ctrl.Manager) error {
	if !o.page.serve {
		return nil
	}
	c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("make a client for the page: %w", err)
	}
	fleet, err := ui.NewFleet(ui.Options{Client: c, Namespace: o.namespace, Clock: clock.RealClock{}})
	if err != nil {
		return err
	}
	viewers, err := newViewers(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("ask the API server who may see the page: %w", err)
	}
	listener, err := o.pageListener(ctx, mgr)
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return mgr.Add(page{fleet, &manager.Server{Name: "page", Listener: listener, ShutdownTimeout: new(time.Second), Server: &http.Server{
		Handler: fleet.Hosted(viewers.only, o.cookieSecret), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}})
}

// cookieSecret returns what keeps the tokens in cookies secret: all replicas have the same, and nobody else has it.
func (o *options) cookieSecret() ([]byte, error) {
	return os.ReadFile(filepath.Join(o.webhookCertDir, "tls.key"))
}

func (o *options) pageListener(ctx context.Context, mgr ctrl.Manager) (net.Listener, error) {
	tlsOpts, _, err := o.diagnosticsOptions()
	if err != nil {
		return nil, err
	}
	certificate, err := certwatcher.New(filepath.Join(o.webhookCertDir, "tls.crt"), filepath.Join(o.webhookCertDir, "tls.key"))
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(certificate); err != nil {
		return nil, err
	}
	cfg := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate}
	for _, set := range tlsOpts {
		set(cfg)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.page.address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(netutil.LimitListener(l, maxPageConnections), cfg), nil
}

// page is served while its fleet is watched.
type page struct {
	fleet  *ui.Fleet
	server *manager.Server
}

// Start serves until ctx ends.
func (p page) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.server.Server.BaseContext = func(net.Listener) context.Context { return ctx } // pages that listen for news end with it
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		p.fleet.Run(ctx)
	}()
	err := p.server.Start(ctx)
	cancel()
	<-watching
	return err
}

// NeedLeaderElection reports that each replica serves it.
func (page) NeedLeaderElection() bool { return false }
