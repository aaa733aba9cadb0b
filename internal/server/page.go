package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
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
	authorize, err := authorizing(mgr)
	if err != nil {
		return fmt.Errorf("ask the API server who may see the page: %w", err)
	}
	listener, err := o.pageListener(ctx, mgr)
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return mgr.Add(page{fleet, &manager.Server{Name: "page", Listener: listener, ShutdownTimeout: new(time.Second), Server: &http.Server{
		Handler: fleet.Hosted(authorize), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}})
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

// How long what the API server said of a token, and of what its user may see, counts: as for metrics, but that a right that was withdrawn ends sooner.
const (
	tokenCounts = time.Minute
	rightCounts = time.Minute
	noCounts    = 10 * time.Second
	askTimeout  = 10 * time.Second
)

// authorizing returns what lets a request go on if the API server knows its token, and says that the token's user may do that with the path.
// controller-runtime's filter for metrics does the same, but calls a token that nobody knows an error of the server.
func authorizing(mgr ctrl.Manager) (func(http.Handler) http.Handler, error) {
	tokens, err := authenticationv1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	reviews, err := authorizationv1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: tokenCounts, TokenAccessReviewClient: tokens,
		TokenAccessReviewTimeout: askTimeout, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return nil, err
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviews, AllowCacheTTL: rightCounts, DenyCacheTTL: noCounts, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return nil, err
	}
	log := ctrl.Log.WithName("page")
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, ok, err := authenticator.AuthenticateRequest(r)
			if err != nil || !ok {
				log.V(2).Info("A token is not known", "why", err)
				http.Error(w, "The API server does not know the token.", http.StatusUnauthorized)
				return
			}
			may, why, err := rights.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
			switch {
			case err != nil:
				log.Error(err, "Could not ask the API server who may see the page", "user", who.User.GetName())
				http.Error(w, "The API server could not be asked.", http.StatusBadGateway)
			case may != authorizer.DecisionAllow:
				log.V(2).Info("Somebody may not see the page", "user", who.User.GetName(), "why", why)
				http.Error(w, "You may not get this.", http.StatusForbidden)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}
