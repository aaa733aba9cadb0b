package server

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/shard"
)

// election is how replicas agree on who works on what: one leads, or each holds some of the shards. Without both this process works on all.
type election struct {
	lock    resourcelock.Interface
	shards  *shard.Shards
	elector *shard.Elector
}

// ownNamespace is where a container is told in which namespace its pod is.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (o *options) election(cfg *rest.Config) (*election, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	o.instance = fmt.Sprintf("%s_%.8s_%d", hostname, uuid.NewUUID(), os.Getpid()) // in a container, each start has the same process id
	switch {
	case o.shards < 1:
		return nil, fmt.Errorf("--shards is %d and has to be 1 at least", o.shards)
	case !o.leaderElect && o.shards > 1:
		return nil, fmt.Errorf("--shards is %d: replicas that share a fleet elect who has which part, so --leader-elect is needed", o.shards)
	case !o.leaderElect:
		return &election{}, nil
	}
	if o.leaderNamespace == "" {
		name, err := os.ReadFile(ownNamespace)
		if err != nil {
			return nil, fmt.Errorf("refit does not run in a pod, so that --leader-elect takes --leader-elect-namespace: %w", err)
		}
		o.leaderNamespace = strings.TrimSpace(string(name))
	}
	// A fleet's requests are not to delay those by which the Leases are renewed.
	own := rest.AddUserAgent(cfg, "leader-election")
	own.Timeout = o.renewDeadline / 2
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the election: %w", err)
	}
	if o.shards == 1 {
		return &election{lock: shard.NewLock(client.CoordinationV1(), o.leaderNamespace, o.instance, 0, 1)}, nil
	}
	shards := &shard.Shards{Count: o.shards}
	return &election{shards: shards, elector: &shard.Elector{
		Shards: shards, Client: client, Namespace: o.leaderNamespace, Identity: o.instance,
		Duration: o.leaseDuration, Deadline: o.renewDeadline, Retry: o.retryPeriod, Drain: o.shutdownDeadline,
	}}, nil
}

// addTo has the manager hold its part of the shards.
func (e *election) addTo(mgr ctrl.Manager) error {
	if e.elector == nil {
		return nil
	}
	return mgr.Add(e.elector)
}
