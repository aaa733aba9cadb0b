package server

import (
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/capi-refit/refit/internal/shard"
)

// ownNamespace is where a container is told in which namespace its pod is.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// mostShards bounds the Leases that replicas renew every two seconds.
const mostShards = 64

// nameInstance gives this process a name that no other start of it has.
func (o *options) nameInstance() error {
	hostname, err := os.Hostname()
	o.instance = fmt.Sprintf("%s_%.8s_%d", hostname, uuid.NewUUID(), os.Getpid()) // in a container, each start has the same process id
	return err
}

// checkShards returns an error if the fleet can't be divided as the flags say.
func (o *options) checkShards() error {
	if o.shards < 1 || o.shards > mostShards {
		return fmt.Errorf("--shards is %d and can be 1 to %d", o.shards, mostShards)
	}
	if o.shards == 1 {
		return nil
	}
	if !o.leaderElect {
		return fmt.Errorf("--shards is %d: replicas that share a fleet elect who has which part, so --leader-elect is needed", o.shards)
	}
	if o.retryPeriod < 100*time.Millisecond || o.renewDeadline <= 2*o.retryPeriod || o.leaseDuration.Truncate(time.Second) <= o.renewDeadline {
		return fmt.Errorf("--leader-elect-retry-period is %s, --leader-elect-renew-deadline %s and --leader-elect-lease-duration %s: the first has to be 100ms at least, the second more than twice that, and the third, in whole seconds, more than the second",
			o.retryPeriod, o.renewDeadline, o.leaseDuration)
	}
	return nil
}

// elector returns what has this process hold its part of the shards, or nil where one replica leads.
func (o *options) elector(cfg *rest.Config) (*shard.Elector, error) {
	if err := o.checkShards(); err != nil || o.shards == 1 {
		return nil, err
	}
	if o.leaderNamespace == "" {
		name, err := os.ReadFile(ownNamespace)
		if err != nil {
			return nil, fmt.Errorf("refit does not run in a pod, so that --shards takes --leader-elect-namespace: %w", err)
		}
		o.leaderNamespace = strings.TrimSpace(string(name))
	}
	// A fleet's requests are not to delay those by which the Leases are renewed, and these are few.
	own := rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election") // which changes what it is given
	own.QPS = -1
	watcher, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the election: %w", err)
	}
	own.Timeout = o.renewDeadline / 2
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the election: %w", err)
	}
	return &shard.Elector{
		Shards: &shard.Shards{Count: o.shards}, Client: client, Watcher: watcher, Namespace: o.leaderNamespace, Identity: o.instance,
		Duration: o.leaseDuration, Deadline: o.renewDeadline, Retry: o.retryPeriod, Drain: o.shutdownDeadline,
		Lost: func(why error) { time.AfterFunc(o.leaseDuration-o.renewDeadline, func() { endAtOnce(why) }) },
	}, nil
}

// endAtOnce ends a process that others no longer wait for, and that has not ended by itself.
func endAtOnce(why error) {
	klog.Background().Error(why, "Ending at once")
	klog.Flush()
	os.Exit(1)
}
