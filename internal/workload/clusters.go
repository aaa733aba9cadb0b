package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/lru"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepAtMost is for how many Clusters something is kept.
const keepAtMost = 1000

// Cluster is one workload cluster. It is to be got again each time, as credentials change.
type Cluster struct {
	// Client reads from the API server.
	Client client.Client
	// Clientset does so, too. It is for libraries that want one.
	Clientset kubernetes.Interface
	// Ask asks one of the API servers for its version. Nil: nothing does.
	Ask AskFunc
}

// Connections are those of Cluster API's ClusterCache.
type Connections interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
	GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error)
}

var _ Connections = clustercache.ClusterCache(nil)

// Clusters reaches workload clusters. It may be used by several goroutines.
type Clusters struct {
	// Cache has the connections to Clusters without a Secret for refit.
	Cache Connections
	// Secrets reads Secrets from the management cluster's API server.
	Secrets client.Reader
	// UserAgent is what refit calls itself: refit/<version>.
	UserAgent string

	// admins says why the ClusterCache could not use a kubeconfig; nil: that is not known.
	admins *adminSecrets
	// filter is told of Secrets; nil: nobody is.
	filter *adminOnly

	once sync.Once
	kept *lru.Cache
	// making is locked by who makes what is kept of a Cluster.
	making keymutex.KeyMutex
}

// Get returns the workload cluster of a Cluster, by the Secret that refit has for it, else by the ClusterCache. With a Secret the
// workload cluster is not asked anything yet. A Secret that can't be read or used is an error: refit takes no more rights than it
// was given. Without a connection the error is ErrUnavailable.
func (c *Clusters) Get(ctx context.Context, cluster client.ObjectKey) (*Cluster, error) {
	secret, err := findSecret(ctx, c.Secrets, cluster)
	if err != nil {
		return nil, fmt.Errorf("reach the workload cluster of Cluster %s: %w", cluster, err)
	}
	if secret == nil {
		return c.connected(ctx, cluster)
	}
	c.filter.found(cluster)
	k, err := c.made(cluster, version{secret.UID, secret.ResourceVersion}, func() (*kept, error) {
		return fromKubeconfig(secret.Data[SecretKey], c.UserAgent)
	})
	if err != nil {
		return nil, fmt.Errorf("reach the workload cluster of Cluster %s: %w", cluster, unusable(client.ObjectKeyFromObject(secret), err))
	}
	return &Cluster{Client: k.client, Clientset: k.clientset, Ask: k.ask}, nil
}

// connected returns the workload cluster by the ClusterCache.
func (c *Clusters) connected(ctx context.Context, cluster client.ObjectKey) (*Cluster, error) {
	fail := func(err error) (*Cluster, error) {
		c.forget(cluster)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			if why := c.admins.why(cluster); why != nil {
				return nil, fmt.Errorf("reach the workload cluster of Cluster %s: %w; or give refit a kubeconfig of its own, in Secret %s", cluster, why, cluster.Name+SecretSuffix)
			}
			return nil, fmt.Errorf("%w: Cluster %s; its condition RemoteConnectionProbe and refit's log say more: %w", ErrUnavailable, cluster, err)
		}
		return nil, fmt.Errorf("reach the workload cluster of Cluster %s: %w", cluster, err)
	}
	cfg, err := c.Cache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return fail(err)
	}
	uncached, err := c.Cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fail(err)
	}
	k, err := c.made(cluster, cfg, func() (*kept, error) { return fromConnection(cfg) }) // each connection has a config of its own
	if err != nil {
		return fail(err)
	}
	return &Cluster{Client: k.absent.client(uncached), Clientset: k.clientset, Ask: k.ask}, nil
}

// version is one version of a Secret.
type version struct {
	uid             types.UID
	resourceVersion string
}

// made returns what is kept of a cluster, and makes it if it was not made from the same. Of many who come at once one does: a client of each would have a
// connection of its own, and ask the API server what it serves.
func (c *Clusters) made(cluster client.ObjectKey, from any, build func() (*kept, error)) (*kept, error) {
	if k := c.keptFor(cluster, from); k != nil {
		return k, nil
	}
	c.making.LockKey(cluster.String())
	defer func() { _ = c.making.UnlockKey(cluster.String()) }() // that of a hash has no error
	if k := c.keptFor(cluster, from); k != nil {
		return k, nil
	}
	k, err := build()
	if err != nil {
		return nil, err
	}
	k.from = from
	c.keep(cluster, k)
	return k, nil
}

// keptFor returns what is kept if it was made from the same.
func (c *Clusters) keptFor(cluster client.ObjectKey, from any) *kept {
	value, ok := c.cache().Get(cluster)
	if !ok {
		return nil
	}
	if k := value.(*kept); k.from == from {
		return k
	}
	c.forget(cluster)
	return nil
}

func (c *Clusters) keep(cluster client.ObjectKey, k *kept) { c.cache().Add(cluster, k) }

func (c *Clusters) forget(cluster client.ObjectKey) { c.cache().Remove(cluster) }

func (c *Clusters) cache() *lru.Cache {
	c.once.Do(func() {
		c.kept = lru.NewWithEvictionFunc(keepAtMost, func(_ lru.Key, value any) { value.(*kept).close() })
		c.making = keymutex.NewHashed(0)
	})
	return c.kept
}
