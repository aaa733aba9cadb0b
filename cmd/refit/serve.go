package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/flags"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/leader"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/webhook"
)

// How long Cluster API waits for an answer. The hooks answer in milliseconds; what remains is for a busy machine and a
// slow network. Cluster API takes 30 s at most.
const hookTimeout = 10 * time.Second

type serveOptions struct {
	kubeconfig       string
	namespace        string
	healthAddr       string
	webhookHost      string
	webhookPort      int
	webhookCertDir   string
	clients          clientFlags
	selfSigned       bool
	selfSignedHosts  []string
	leaderElect      bool
	leaseDuration    time.Duration
	renewDeadline    time.Duration
	retryPeriod      time.Duration
	leaderNamespace  string
	qps              float32
	burst            int
	agentDir         string
	agentSignatures  string
	maxUpdates       int
	onConflict       string
	diagnostics      flags.ManagerOptions
	logs             *logs.Options
	rules            ruleFlags
	exclusive        exclusiveFlags
	drift            driftFlags
	shutdownDeadline time.Duration
}

func newServeCommand() *cobra.Command {
	o := &serveOptions{logs: logs.NewOptions()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer Cluster API's in-place update hooks and update machines",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
				return err
			}
			ctrl.SetLogger(klog.Background())
			// net/http's servers report connections there.
			stdlog.SetFlags(0)
			stdlog.SetOutput(webhook.NewHandshakeLog(ctrl.Log.WithName("http"), clock.RealClock{}))
			return o.run(cmd.Context())
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (o *serveOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the management cluster. Unset: the cluster that refit runs in, or the usual places.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch. Unset: all namespaces.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the health and readiness endpoints.")
	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address on which the hooks are served. Unset: all addresses.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port on which the hooks are served.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Directory with tls.crt and tls.key. They are read again when they change.")
	o.clients.add(fs)
	fs.BoolVar(&o.selfSigned, "self-signed", false, "Make certificates, write them to --webhook-cert-dir, and print the CA bundle for the ExtensionConfig. For trying refit out.")
	fs.StringSliceVar(&o.selfSignedHosts, "self-signed-hosts", []string{"localhost", "127.0.0.1", "::1"}, "Names and addresses in the self-signed certificate.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Elect a leader among the replicas. All of them answer hooks; the leader updates machines.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long the others wait before they take the leadership over.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long the leader tries to renew before it gives up.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between two tries.")
	fs.StringVar(&o.leaderNamespace, "leader-elect-namespace", "", "Namespace of the election's Lease. Unset: the one that refit runs in.")
	fs.Float32Var(&o.qps, "kube-api-qps", 100, "Queries per second to the API server, on average.")
	fs.IntVar(&o.burst, "kube-api-burst", 200, "Queries at once to the API server.")
	fs.StringVar(&o.agentDir, "agent-dir", "/agents", "Directory with the agents for nodes, refit-node-linux-amd64 and refit-node-linux-arm64.")
	fs.StringVar(&o.agentSignatures, "agent-signature-dir", "", "Directory with the agents' signatures, refit-node-linux-amd64.sig and refit-node-linux-arm64.sig, for nodes with a gate. Unset: --agent-dir.")
	fs.IntVar(&o.maxUpdates, "max-concurrent-updates", 100, "How many machines to update at once, over all clusters.")
	fs.StringVar(&o.onConflict, "on-conflict", string(node.Overwrite), "What to do with a file that was changed both in the specs and on the node: Overwrite (a copy is kept on the node) or Refuse (the update waits).")
	fs.DurationVar(&o.shutdownDeadline, "shutdown-timeout", 30*time.Second, "How long to wait at the end for hooks and controllers that are under way. Work on nodes goes on without refit and is taken up again.")
	flags.AddManagerOptions(fs, &o.diagnostics)
	o.rules.add(fs)
	o.exclusive.add(fs)
	o.drift.add(fs)
	logsv1.AddFlags(o.logs, fs)
}

func (o *serveOptions) run(ctx context.Context) error {
	log := ctrl.Log.WithName("serve")
	if o.selfSigned {
		bundle, err := webhook.WriteSelfSigned(o.webhookCertDir, o.selfSignedHosts, time.Now())
		if err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
		fmt.Print(string(bundle))
	}
	if _, err := os.Stat(filepath.Join(o.webhookCertDir, "tls.crt")); err != nil {
		return fmt.Errorf("no serving certificate: %w; mount one, say where it is with --webhook-cert-dir, or try --self-signed", err)
	}
	mgr, hooks, err := o.manager(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	handOver := func(why string) {
		log.Info("Stopping, so that another instance goes on", "reason", why)
		stop()
	}
	if err := o.addUpdates(ctx, mgr, hooks, handOver); err != nil {
		return err
	}
	log.Info("Starting", "version", version)
	o.clients.report(log, metrics.Registry)
	return mgr.Start(ctx)
}

// manager returns the manager, with the server for the hooks in it.
func (o *serveOptions) manager(ctx context.Context) (ctrl.Manager, ctrlwebhook.Server, error) {
	cfg, err := o.restConfig()
	if err != nil {
		return nil, nil, err
	}
	tlsOpts, metricsOpts, err := o.diagnosticsOptions()
	if err != nil {
		return nil, nil, err
	}
	clientTLS, err := o.clients.options(ctx)
	if err != nil {
		return nil, nil, err
	}
	hookTLS := slices.Concat(tlsOpts, clientTLS)
	server := webhook.NewListener(ctrlwebhook.Options{Host: o.webhookHost, Port: o.webhookPort, CertDir: o.webhookCertDir, TLSOpts: hookTLS}, ctrl.Log.WithName("hooks"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	opts := ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       *metricsOpts,
		HealthProbeBindAddress:        o.healthAddr,
		WebhookServer:                 server,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "controller-leader-election-refit",
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		GracefulShutdownTimeout:       &o.shutdownDeadline,
	}
	opts.Cache.ByObject = uncopied()
	opts.Cache.DefaultTransform = cache.TransformStripManagedFields()
	if o.namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	hooks := mgr.GetWebhookServer() // not before this does the manager run it
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("hooks", o.hooksServed(hooks)),
		mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())),
	); err != nil {
		return nil, nil, err
	}
	return mgr, hooks, nil
}

// diagnosticsOptions returns the options for TLS on all ports, and those of the diagnostics endpoint, which shows the same
// certificate as the hooks do.
func (o *serveOptions) diagnosticsOptions() ([]func(*tls.Config), *metricsserver.Options, error) {
	tlsOpts, metricsOpts, err := flags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, nil, err
	}
	metricsOpts.CertDir = o.webhookCertDir
	return tlsOpts, metricsOpts, nil
}

// hooksServed fails until hooks are served.
func (o *serveOptions) hooksServed(hooks ctrlwebhook.Server) healthz.Checker {
	if !o.clients.required() {
		return hooks.StartedChecker()
	}
	return webhook.Listening(net.JoinHostPort(o.webhookHost, strconv.Itoa(o.webhookPort)))
}

// cachesSynced fails until hooks can be answered out of the caches.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		for _, obj := range cached() {
			if informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil || !informer.HasSynced() {
				return errors.New("the caches are not filled yet")
			}
		}
		return nil
	}
}

func (o *serveOptions) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w; say where it is with --kubeconfig", err)
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = o.qps, o.burst, "refit/"+version
	return cfg, nil
}

// addUpdates adds what answers hooks and updates machines to the manager.
func (o *serveOptions) addUpdates(ctx context.Context, mgr ctrl.Manager, on ctrlwebhook.Server, handOver func(why string)) error {
	conflict := node.ConflictPolicy(o.onConflict)
	if conflict != node.Overwrite && conflict != node.Refuse {
		return fmt.Errorf("--on-conflict is %q and can be %s or %s", o.onConflict, node.Overwrite, node.Refuse)
	}
	agents, err := node.LoadSignedAgents(o.agentDir, cmp.Or(o.agentSignatures, o.agentDir))
	if err != nil {
		return err
	}
	judges, err := addJudges(mgr, o.rules)
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	changes, err := addChangeManagement(mgr, judges)
	if err != nil {
		return err
	}
	live := machineupdate.RememberCRDs(mgr.GetAPIReader(), clock.RealClock{})
	reconciler := &machineupdate.Reconciler{
		Client: mgr.GetClient(), Live: live, Disruptions: judges.disruptions, Releases: judges.sources, OnConflict: conflict,
		Dialer: node.SSHDialer{}, Agents: agents, Recorder: mgr.GetEventRecorder("refit"), Clock: clock.RealClock{}, Gate: changes.gate,
		Metrics:  machineupdate.NewMetrics(metrics.Registry),
		Instance: fmt.Sprintf("%s_%.8s_%d", hostname, uuid.NewUUID(), os.Getpid()), // in a container, each start has the same process id
	}
	if err := o.exclusive.addTo(ctx, mgr, reconciler, handOver); err != nil {
		return err
	}
	if err := reconciler.SetupWithManager(mgr, o.maxUpdates); err != nil {
		return fmt.Errorf("add the controller: %w", err)
	}
	whenLeading(mgr, &machineupdate.Collector{Client: mgr.GetClient()})
	if err := o.drift.addTo(mgr, reconciler); err != nil {
		return err
	}
	scope := handlers.Scope(o.namespace)
	canUpdate := handlers.NewCanUpdate(handlers.NewEngine(judges), changes.hooks, handlers.NewMetrics(metrics.Registry), scope)
	update := handlers.NewUpdate(&machineupdate.Store{Client: mgr.GetClient(), Live: live, Clock: clock.RealClock{}}, scope)
	server, err := webhook.NewServer(ctrl.Log.WithName("hooks"), webhook.NewMetrics(metrics.Registry))
	if err != nil {
		return err
	}
	return server.Register(on, append(changes.lifecycle(scope), []webhook.Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: hookTimeout, Handle: canUpdate.Machine},
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", Timeout: hookTimeout, Handle: canUpdate.MachineSet},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", Timeout: hookTimeout, Handle: update.Machine},
	}...))
}

// whenLeading has the server show what a collector collects once it is the leader.
func whenLeading(mgr ctrl.Manager, c prometheus.Collector) {
	metrics.Registry.MustRegister(leader.Collector{Collector: c, Elected: mgr.Elected()})
}
