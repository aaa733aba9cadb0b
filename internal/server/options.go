package server

import (
	stdlog "log"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/webhook"
)

const gateURLsFlag = "gate-prometheus-url-prefixes"

// options are what the flags say.
type options struct {
	version         string
	updaters        []updaters.Constructor
	kubeconfig      string
	namespace       string
	healthAddr      string
	webhookHost     string
	webhookPort     int
	webhookCertDir  string
	clients         clientFlags
	admission       admissionFlags
	page            pageFlags
	selfSigned      bool
	selfSignedHosts []string
	leaderElect     bool
	shards          int
	leaseDuration   time.Duration
	renewDeadline   time.Duration
	retryPeriod     time.Duration
	leaderNamespace string
	qps             float32
	burst           int
	agentDir        string
	agentSignatures string
	maxUpdates      int
	// maxUpdatesOfCluster is the part of them that one cluster may have.
	maxUpdatesOfCluster int
	watchSecrets        bool
	registeredUpdaters  bool
	onConflict          string
	diagnostics         flags.ManagerOptions
	logs                *logs.Options
	rules               judges.RuleFlags
	exclusive           exclusiveFlags
	// instance is the name of this process. No two starts have the same.
	instance         string
	drift            driftFlags
	login            loginFlags
	tracing          tracingFlags
	gateURLs         []string
	shutdownDeadline time.Duration
}

// NewCommand returns the command that serves, of a program of a version that has others' updaters besides refit's own.
func NewCommand(version string, others ...updaters.Constructor) *cobra.Command {
	o := &options{version: version, updaters: others, logs: logs.NewOptions()}
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

func (o *options) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the management cluster. Unset: the cluster that refit runs in, or the usual places.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch. Unset: all namespaces.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the health and readiness endpoints.")
	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address on which the hooks are served. Unset: all addresses.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port on which the hooks are served.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Directory with tls.crt and tls.key. They are read again when they change.")
	o.clients.add(fs)
	o.admission.add(fs)
	o.page.add(fs)
	fs.BoolVar(&o.selfSigned, "self-signed", false, "Make certificates, write them to --webhook-cert-dir, and print the CA bundle for the ExtensionConfig. For trying refit out.")
	fs.StringSliceVar(&o.selfSignedHosts, "self-signed-hosts", []string{"localhost", "127.0.0.1", "::1"}, "Names and addresses in the self-signed certificate.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Elect a leader among the replicas. All of them answer hooks; the leader updates machines.")
	fs.IntVar(&o.shards, "shards", 1, "With --leader-elect, into how many parts the namespaces are divided, each with a leader of its own: as many as there are replicas, or more. The same for all replicas.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long the others wait before they take the leadership over.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long the leader tries to renew before it gives up.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between two tries.")
	fs.StringVar(&o.leaderNamespace, "leader-elect-namespace", "", "Namespace of the election's Leases. Unset: the one that refit runs in.")
	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Queries per second to the API server, on average; of the hook that asks for updates as many besides.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Queries at once to the API server.")
	fs.StringVar(&o.agentDir, "agent-dir", "/agents", "Directory with the agents for nodes, refit-node-linux-amd64 and refit-node-linux-arm64.")
	fs.StringVar(&o.agentSignatures, "agent-signature-dir", "", "Directory with the agents' signatures, refit-node-linux-amd64.sig and refit-node-linux-arm64.sig, for nodes with a gate. Unset: --agent-dir.")
	fs.IntVar(&o.maxUpdates, "max-concurrent-updates", 500, "How many machines to update at once, over all clusters.")
	fs.IntVar(&o.maxUpdatesOfCluster, "max-concurrent-updates-per-cluster", 100, "How many machines of one cluster to update at once. One whose nodes don't answer leaves the others to other clusters.")
	fs.BoolVar(&o.registeredUpdaters, "registered-updaters", false, "Alpha: docs/write-a-remote.md. Have the extensions that UpdaterRegistrations name be updaters beside refit's own.")
	fs.BoolVar(&o.watchSecrets, "watch-secrets", false, "Go on at once when a Secret changes that an update may wait for, instead of looking again every ten seconds. It takes the right to list and watch Secrets: config/components/watch-secrets.")
	fs.StringVar(&o.onConflict, "on-conflict", string(node.Overwrite), "What to do with a file that was changed both in the specs and on the node: Overwrite (a copy is kept on the node) or Refuse (the update waits).")
	fs.DurationVar(&o.shutdownDeadline, "shutdown-timeout", 30*time.Second, "How long to wait at the end for hooks and controllers that are under way. Work on nodes goes on without refit and is taken up again.")
	fs.StringSliceVar(&o.gateURLs, gateURLsFlag, nil, "With what the URLs begin at which health gates of ChangeManagementPolicies may ask Prometheus, each a scheme and a host, and maybe a path, such as https://prometheus.monitoring.svc:9090. Where one begins with http, bearer tokens of gates are sent unencrypted. Unset: they may ask nowhere, and a policy that would is closed.")
	flags.AddManagerOptions(fs, &o.diagnostics)
	o.rules.Add(fs)
	o.rules.AddSoak(fs)
	o.exclusive.add(fs)
	o.drift.add(fs)
	o.login.add(fs)
	o.tracing.add(fs)
	logsv1.AddFlags(o.logs, fs)
}
