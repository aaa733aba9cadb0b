package workload

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/shard"
)

// connectAtOnce is how many Clusters are connected to, or probed, at the same time.
const connectAtOnce = 10

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Setup adds a ClusterCache to the manager, and returns what reaches workload clusters by it. It runs on the leader only, for
// the Clusters of the shards that it holds: elsewhere Get finds no connection. ctx bounds the life of the manager.
//
// The ClusterCache connects to Clusters without a Secret for refit, and asks each of their API servers for "/" every 10 s. A
// Cluster whose Secret is taken away is connected to when the Cluster changes next. The rules for refit's own kubeconfigs hold for those
// that the ClusterCache reads, too.
func Setup(ctx context.Context, mgr shard.Manager, userAgent string, clk clock.PassiveClock) (*Clusters, error) {
	secrets := mgr.GetAPIReader()
	filter := &adminOnly{secrets: secrets, clock: clk, asked: lru.New(keepAtMost)}
	admins := &adminSecrets{secrets: secrets, refused: lru.New(keepAtMost)}
	cache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: admins,
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			return mgr.Shards.Holds(cluster.Namespace) && (!provisioned(cluster) || filter.connects(ctx, client.ObjectKeyFromObject(cluster)))
		},
		Client: clustercache.ClientOptions{Timeout: timeout, QPS: qps, Burst: burst, UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: connectAtOnce, NeedLeaderElection: ptr.To(true)})
	if err != nil {
		return nil, fmt.Errorf("add the cluster cache: %w", err)
	}
	return &Clusters{Cache: cache, Secrets: secrets, UserAgent: userAgent, admins: admins}, nil
}

// provisioned reports whether there is something to connect to. To a Cluster without that the ClusterCache does not connect, and asks again when there
// is.
func provisioned(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)
}

// askEvery is how often it is asked whether a Cluster to which there is a connection has a Secret for refit by now.
const askEvery = time.Minute

// adminOnly picks the Clusters that have no Secret for refit, so that the administrator's credentials are used for no others.
type adminOnly struct {
	secrets client.Reader
	clock   clock.PassiveClock
	// asked is when a Cluster was last found to have none.
	asked *lru.Cache
}

// connects reports whether the ClusterCache is to connect to a Cluster. It asks about each of its Clusters every 10 s.
func (a *adminOnly) connects(ctx context.Context, cluster client.ObjectKey) bool {
	if at, ok := a.asked.Get(cluster); ok && a.clock.Since(at.(time.Time)) < askEvery {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch secret, err := findSecret(ctx, a.secrets, cluster); {
	case err != nil:
		// The ClusterCache does not ask again about what it has once been told to leave. This decides about a connection only:
		// Get does not use it unless it knows that there is no Secret.
		ctrl.LoggerFrom(ctx).Info("Could not find out whether refit has a kubeconfig of its own", "Cluster", cluster, "reason", err.Error())
		return true
	case secret != nil:
		a.asked.Remove(cluster)
		return false
	default:
		a.asked.Add(cluster, a.clock.Now())
		return true
	}
}
