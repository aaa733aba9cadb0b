package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/liveread"
	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/shard"
)

// connectAtOnce is how many Clusters are connected to, or probed, at the same time.
const connectAtOnce = 10

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Setup adds a ClusterCache to the manager, and returns what reaches workload clusters by it. It runs on the leader only, for
// the Clusters of the shards that it holds: elsewhere Get finds no connection. ctx bounds the life of the manager. watchSecrets has the metadata of
// Secrets be read from the manager's cache, which watches them.
//
// The ClusterCache connects to Clusters without a Secret for refit, and asks each of their API servers for "/" every 10 s. A
// Cluster whose Secret is taken away is connected to when the Cluster changes next. The rules for refit's own kubeconfigs hold for those
// that the ClusterCache reads, too.
func Setup(ctx context.Context, mgr shard.Manager, userAgent string, watchSecrets bool, clk clock.PassiveClock) (*Clusters, error) {
	secrets := liveread.Share(mgr.GetAPIReader())
	filter := &adminOnly{secrets: secrets, clock: clk, asked: lru.New(maxAsked)}
	if watchSecrets {
		filter.secrets, filter.watched = mgr.GetClient(), true
	}
	admins := &adminSecrets{secrets: secrets, refused: lru.New(keepAtMost)}
	cache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: admins,
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			return mgr.Shards.Holds(cluster.Namespace) && (!provisioned(cluster) || filter.connects(ctx, cluster))
		},
		Client: clustercache.ClientOptions{Timeout: timeout, QPS: qps, Burst: burst, UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: connectAtOnce, NeedLeaderElection: ptr.To(true)})
	if err != nil {
		return nil, fmt.Errorf("add the cluster cache: %w", err)
	}
	return &Clusters{Cache: cache, Secrets: secrets, UserAgent: userAgent, admins: admins, filter: filter}, nil
}

// provisioned reports whether there is something to connect to. To a Cluster without that the ClusterCache does not connect, and asks again when there
// is.
func provisioned(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)
}

// adminOnly picks the Clusters that have no Secret for refit, so that the administrator's credentials are used for no others.
type adminOnly struct {
	secrets client.Reader
	// watched tells that it reads a cache, which costs no request.
	watched bool
	clock   clock.PassiveClock
	// asked has, by the Cluster, when it was last found to have none, as *noSecret.
	asked *lru.Cache
}

const (
	// askAgain is when it is asked again at the earliest whether a Cluster to which there is a connection has a Secret for refit by now. Each time that it has
	// none it takes twice as long, to resync.Every.
	askAgain = time.Minute
	// maxAsked bounds the Clusters of which that is remembered, some 300 bytes each. All are asked about in turn: with one more none would be.
	maxAsked = 20_000
)

// noSecret says that a Cluster has had no Secret for refit.
type noSecret struct {
	at      time.Time
	version string // of the Cluster
	// interval is how long that is taken for granted without jitter, and lasts with it.
	interval, lasts time.Duration
}

// holds reports whether that is still taken for granted. A Cluster that has changed is asked about sooner: one that can't be reached any more says so.
func (n *noSecret) holds(cluster *clusterv1.Cluster, now time.Time) bool {
	age := now.Sub(n.at)
	return age >= 0 && age < n.lasts && (age < askAgain || n.version == cluster.ResourceVersion)
}

// connects reports whether the ClusterCache is to connect to a Cluster. It asks about each of its Clusters every 10 s.
func (a *adminOnly) connects(ctx context.Context, cluster *clusterv1.Cluster) bool {
	key, now := client.ObjectKeyFromObject(cluster), a.clock.Now()
	none := &noSecret{at: now, version: cluster.ResourceVersion, interval: askAgain, lasts: askAgain}
	if value, ok := a.asked.Get(key); ok {
		last := value.(*noSecret)
		if last.holds(cluster, now) {
			return true
		}
		none.interval = min(2*last.interval, resync.Every)
		none.lasts = max(resync.Within(none.interval), askAgain)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secret := &metav1.PartialObjectMetadata{} // its content is not asked for
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	switch found, err := readSecret(ctx, a.secrets, key, secret); {
	case err != nil:
		// The ClusterCache does not ask again about what it has once been told to leave. This decides about a connection only:
		// Get does not use it unless it knows that there is no Secret.
		ctrl.LoggerFrom(ctx).Info("Could not find out whether refit has a kubeconfig of its own", "Cluster", key, "reason", err.Error())
	case found:
		a.asked.Remove(key)
		return false
	case !a.watched:
		a.asked.Add(key, none)
	}
	return true
}

// found has the ClusterCache be told to leave a Cluster, when it asks next, that somebody has found to have a Secret for refit.
func (a *adminOnly) found(cluster client.ObjectKey) {
	if a != nil {
		a.asked.Remove(cluster)
	}
}
