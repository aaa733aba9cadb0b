// Package server makes the server out of its flags: what answers the hooks, and the controllers.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/flags"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/leader"
	"github.com/capi-refit/refit/internal/liveread"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/webhook"
)

// How long Cluster API waits for an answer. The hooks answer in milliseconds; what remains is for a busy machine and a
// slow network. Cluster API takes 30 s at most.
const hookTimeout = 10 * time.Second

func (o *options) run(ctx context.Context) error {
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
	shutdown, err := o.tracing.start(ctx, o.version, o.instance)
	if err != nil {
		return err
	}
	defer shutdown() // when nothing is done any more
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	handOver := func(why string) {
		log.Info("Stopping, so that another instance goes on", "reason", why)
		stop()
	}
	if err := errors.Join(o.addUpdates(ctx, mgr, hooks, handOver), o.addPage(ctx, mgr)); err != nil {
		return err
	}
	log.Info("Starting", "version", o.version)
	o.clients.report(log, metrics.Registry)
	registerProcess(metrics.Registry, o.version, mgr)
	return mgr.Start(ctx)
}

// manager returns the manager, with the server for the hooks in it.
func (o *options) manager(ctx context.Context) (shard.Manager, ctrlwebhook.Server, error) {
	var m shard.Manager
	cfg, err := o.restConfig()
	if err != nil {
		return m, nil, err
	}
	if err := o.nameInstance(); err != nil {
		return m, nil, err
	}
	elector, err := o.elector(cfg)
	if err != nil {
		return m, nil, err
	}
	if elector != nil {
		m.Shards = elector.Shards
	}
	opts, err := o.managerOptions(ctx, m.Shards)
	if err != nil {
		return m, nil, err
	}
	if m.Manager, err = ctrl.NewManager(cfg, *opts); err != nil {
		return m, nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	if elector != nil {
		err = m.Add(elector)
	}
	hooks := m.GetWebhookServer() // not before this does the manager run it
	return m, hooks, errors.Join(
		err,
		index.Setup(ctx, m.GetFieldIndexer()),
		m.AddHealthzCheck("ping", healthz.Ping),
		m.AddReadyzCheck("hooks", o.hooksServed(hooks)),
	)
}

// managerOptions returns the options of the manager, of this process's shards if the fleet is divided.
func (o *options) managerOptions(ctx context.Context, shards *shard.Shards) (*ctrl.Options, error) {
	tlsOpts, metricsOpts, err := o.diagnosticsOptions()
	if err != nil {
		return nil, err
	}
	clientTLS, err := o.clients.options(ctx)
	if err != nil {
		return nil, err
	}
	hookTLS := slices.Concat(tlsOpts, clientTLS)
	server := webhook.NewListener(ctrlwebhook.Options{Host: o.webhookHost, Port: o.webhookPort, CertDir: o.webhookCertDir, TLSOpts: hookTLS}, ctrl.Log.WithName("hooks"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	opts := &ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       *metricsOpts,
		HealthProbeBindAddress:        o.healthAddr,
		WebhookServer:                 server,
		LeaderElection:                o.leaderElect && shards == nil,
		LeaderElectionID:              shard.LeaderLease,
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		GracefulShutdownTimeout:       &o.shutdownDeadline,
	}
	opts.Cache.ByObject = uncopied(shards)
	opts.Cache.DefaultTransform = cache.TransformStripManagedFields()
	if o.namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	return opts, nil
}

// diagnosticsOptions returns the options for TLS on all ports, and those of the diagnostics endpoint, which shows the same
// certificate as the hooks do.
func (o *options) diagnosticsOptions() ([]func(*tls.Config), *metricsserver.Options, error) {
	tlsOpts, metricsOpts, err := flags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, nil, err
	}
	metricsOpts.CertDir = o.webhookCertDir
	return tlsOpts, metricsOpts, nil
}

// hooksServed fails until hooks are served.
func (o *options) hooksServed(hooks ctrlwebhook.Server) healthz.Checker {
	if !o.clients.required() {
		return hooks.StartedChecker()
	}
	return webhook.Listening(net.JoinHostPort(o.webhookHost, strconv.Itoa(o.webhookPort)))
}

// cachesSynced returns what returns an error until hooks can be answered out of the caches.
func cachesSynced(c cache.Cache) func(context.Context) error {
	var all atomic.Bool
	return func(ctx context.Context) error {
		if all.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		for _, obj := range cached() {
			if informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil || !informer.HasSynced() {
				return errors.New("the caches are not filled yet")
			}
		}
		all.Store(true)
		return nil
	}
}

func (o *options) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w; say where it is with --kubeconfig", err)
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = o.qps, o.burst, "refit/"+o.version
	return cfg, nil
}

// addUpdates adds what answers hooks and updates machines to the manager.
func (o *options) addUpdates(ctx context.Context, mgr shard.Manager, on ctrlwebhook.Server, handOver func(why string)) error {
	judges, err := addJudges(mgr, o.rules, o.updaters)
	if err != nil {
		return err
	}
	changes, err := addChangeManagement(ctx, mgr, judges, judges.Sources, o.ownNamespace(), o.gateURLs)
	if err != nil {
		return err
	}
	reconciler, err := o.reconciler(mgr, judges, changes)
	if err != nil {
		return err
	}
	hooks, accesses, err := hooksAsk(ctx, mgr)
	if err != nil {
		return err
	}
	engine := handlers.NewEngine(judges).Reaching(accesses)
	var others *registered.Registry
	if o.registeredUpdaters {
		extensions, err := o.addRegistered(ctx, mgr)
		if err != nil {
			return err
		}
		reconciler.Registered, others, engine = extensions, extensions, engine.With(extensions)
		reconciler.Judge = engine
	}
	if err := o.addAdmission(mgr, o.ownNamespace(), changes.hooks, engine); err != nil {
		return err
	}
	if err := o.exclusive.addTo(ctx, mgr, reconciler, "refit/"+o.version, handOver); err != nil {
		return err
	}
	changes.health.Sources.Workloads = reconciler.Workloads
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add the controller: %w", err)
	}
	whenLeading(mgr, &machineupdate.Collector{Client: mgr.GetClient()})
	metrics.Registry.MustRegister(machineupdate.SessionsCollector{Sessions: reconciler.Sessions})
	mgr.Shards.OnAcquire(reconciler.Slots.Forget)
	mgr.Shards.OnAcquire(changes.gate.ForgetNamespaces)
	if err := errors.Join(o.drift.addTo(mgr, reconciler), o.login.addTo(ctx, mgr, reconciler), addPending(ctx, mgr, judges, changes, reconciler.Slots.Limits, others, engine, accesses)); err != nil {
		return err
	}
	return o.addHooks(mgr, on, engine, changes, hooks)
}

// hooksAsk returns the client of the hooks, and what finds out which Machines can be reached. Whoever asks for updates does not wait behind those who make
// them, so the hooks have a client with limits of its own.
func hooksAsk(ctx context.Context, mgr ctrl.Manager) (*hookClient, nodeaccess.Machines, error) {
	hooks, err := ownClient(mgr)
	if err != nil {
		return nil, nodeaccess.Machines{}, err
	}
	former := &nodeaccess.Former{Clock: clock.RealClock{}}
	return hooks, nodeaccess.Machines{Client: mgr.GetClient(), Live: hooks.APIReader, Former: former}, former.Watch(ctx, mgr.GetCache())
}

// addRegistered adds what asks the extensions that are registered as updaters.
func (o *options) addRegistered(ctx context.Context, mgr shard.Manager) (*registered.Registry, error) {
	extensions := &registered.Registry{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.ownNamespace()}
	if err := (&registered.Discovery{Client: mgr.GetClient(), Registry: extensions}).SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("add what asks registered updaters for their handlers: %w", err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &refitv1.UpdaterRegistration{}); err != nil { // hooks are answered from it
		return nil, fmt.Errorf("watch UpdaterRegistrations: %w", err)
	}
	return extensions, nil
}

// reconciler returns what updates machines, out of the flags.
func (o *options) reconciler(mgr shard.Manager, by judges.ByPolicy, changes *changeManagement) (*machineupdate.Reconciler, error) {
	conflict := node.ConflictPolicy(o.onConflict)
	if conflict != node.Overwrite && conflict != node.Refuse {
		return nil, fmt.Errorf("--on-conflict is %q and can be %s or %s", o.onConflict, node.Overwrite, node.Refuse)
	}
	if o.maxUpdatesOfCluster < 1 || o.maxUpdates < 1 {
		return nil, fmt.Errorf("--max-concurrent-updates is %d and --max-concurrent-updates-per-cluster %d: both have to be 1 at least", o.maxUpdates, o.maxUpdatesOfCluster)
	}
	agents, err := remote.LoadSignedAgents(o.agentDir, cmp.Or(o.agentSignatures, o.agentDir))
	if err != nil {
		return nil, err
	}
	live := machineupdate.RememberCRDs(liveread.Share(mgr.GetAPIReader()), clock.RealClock{})
	return &machineupdate.Reconciler{
		Client: mgr.GetClient(), Live: live, Disruptions: by.Disruptions, Releases: by.Sources, OnConflict: conflict,
		Dialer: remote.SSHDialer{Jumps: &remote.JumpHosts{}, Kept: &remote.Kept{}}, Agents: agents, Recorder: mgr.GetEventRecorder("refit"), Clock: clock.RealClock{}, Gate: changes.gate,
		Arrivals:     []machineupdate.Arrivals{changes.gate.Policies, by.Disruptions},
		Announcers:   []machineupdate.Announcer{by.Disruptions, by.Sources},
		Windows:      changes.gate.Policies,
		Health:       changes.health,
		Budgets:      changes.gate,
		Sessions:     machineupdate.NewSessions(o.maxUpdates, min(o.maxUpdates, o.maxUpdatesOfCluster)),
		WatchSecrets: o.watchSecrets,
		Metrics:      machineupdate.NewMetrics(metrics.Registry),
		Instance:     o.instance,
		Shards:       mgr.Shards,
		Tracer:       o.tracing.tracer,
	}, nil
}

// addHooks adds what answers hooks.
func (o *options) addHooks(mgr ctrl.Manager, on ctrlwebhook.Server, engine *handlers.Engine, changes *changeManagement, hooks *hookClient) error {
	scope := handlers.Scope(o.namespace)
	canUpdate := handlers.NewCanUpdate(engine, changes.hooks, handlers.NewMetrics(metrics.Registry), scope).
		Telling(&registered.Events{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("refit")})
	store := &machineupdate.Store{Client: hooks, Live: machineupdate.RememberCRDs(hooks.APIReader, clock.RealClock{}), Clock: clock.RealClock{}, Tracer: o.tracing.tracer}
	if err := mgr.Add(machineupdate.NewRecorder(store)); err != nil {
		return fmt.Errorf("add what records updates: %w", err)
	}
	update := handlers.NewUpdate(store, scope)
	server, err := webhook.NewServer(ctrl.Log.WithName("hooks"), webhook.NewMetrics(metrics.Registry))
	if err != nil {
		return err
	}
	synced := cachesSynced(mgr.GetCache())
	if err := mgr.AddReadyzCheck("caches", func(r *http.Request) error { return synced(r.Context()) }); err != nil {
		return err
	}
	server.OnlyWhen(func() error { return synced(context.Background()) })
	return server.Register(on, append(changes.lifecycle(scope), []webhook.Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: hookTimeout, Handle: canUpdate.Machine},
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", Timeout: hookTimeout, Handle: canUpdate.MachineSet},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", Timeout: hookTimeout, Handle: update.Machine},
	}...))
}

// hookClient reads from the manager's caches, or from the API server, and writes there.
type hookClient struct {
	client.Client
	APIReader client.Reader
}

func ownClient(mgr ctrl.Manager) (*hookClient, error) {
	cfg := rest.CopyConfig(mgr.GetConfig())
	options := client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	live, err := client.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make a client for the hooks: %w", err)
	}
	options.Cache = &client.CacheOptions{Reader: mgr.GetCache()}
	c, err := client.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make a client for the hooks: %w", err)
	}
	return &hookClient{Client: c, APIReader: live}, nil
}

// whenLeading has the server show what a collector collects while it is the leader, or holds the first shard: what is collected is about all.
func whenLeading(mgr shard.Manager, c prometheus.Collector) {
	metrics.Registry.MustRegister(leader.Collector{Collector: c, Leads: mgr.Leads})
}
