package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// nodes logs in to some nodes of a Cluster, and looks whether the agent could be run there.
func (c *Checker) nodes(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "node"
	if c.Reach == nil || c.Nodes == 0 {
		return nil
	}
	object := nameOf("Cluster", cluster)
	var list clusterv1.MachineList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return []Finding{unknown(check, object, err)}
	}
	asked := sample(list.Items, c.Nodes)
	if len(asked) == 0 {
		return []Finding{{Check: check, Level: Warning, Object: object, Message: fmt.Sprintf("none of its %d machines has a node to log in to", len(list.Items)), Do: "ask again when its machines have nodes"}}
	}
	failed := make([]error, len(asked))
	var logins sync.WaitGroup
	for i := range asked {
		c.logins <- struct{}{}
		logins.Go(func() {
			defer func() { <-c.logins }()
			failed[i] = c.reach(ctx, &asked[i])
		})
	}
	logins.Wait()
	var all []Finding
	for i, err := range failed {
		if err != nil {
			all = append(all, notReached(check, nameOf("Machine", &asked[i]), err))
		}
	}
	if len(all) == 0 {
		all = append(all, good(check, object, fmt.Sprintf("refit's login works on %d of its %d nodes, with what it takes to run the agent", len(asked), len(list.Items))))
	}
	return all
}

func (c *Checker) reach(ctx context.Context, machine *clusterv1.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	return c.Reach(ctx, machine)
}

// notReached is what becomes of updates of a node that can't be worked on.
func notReached(check, object string, err error) Finding {
	f := Finding{Check: check, Level: Error, Object: object, Message: err.Error()}
	var hostKey *remote.HostKeyError
	var command *remote.CommandError
	switch {
	case errors.Is(err, nodeaccess.ErrNotMet):
		f.Level, f.Do = Warning, "nothing, if that is meant; else pin its key, or have an authority sign it: docs/node-access.md"
	case errors.As(err, &hostKey):
		f.Do = "see that the address is the node's, and that hostKeys of its NodeAccess name its key: docs/node-access.md"
	case errors.Is(err, remote.ErrUnauthorized):
		f.Do = "let the user of its NodeAccess in with that key, and where sudo is set, run all by sudo without a password: docs/node-access.md"
	case errors.As(err, &command):
		f.Do = "put that right on the node, or choose another agentDirectory in its NodeAccess"
	case errors.Is(err, remote.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		f.Level, f.Message = Warning, "its node does not answer from here: "+err.Error()
		f.Do = "if refit's updates wait with the reason Unreachable, see the network and the addresses; else ask from where nodes can be reached, or without --nodes"
	default:
		f.Do = "correct its NodeAccess, and the Secrets that it names: docs/node-access.md"
	}
	return f
}

// sample returns so many of the Machines that have a node, spread over them by their names: those of the control plane first, of which each is asked
// before any other.
func sample(all []clusterv1.Machine, most int) []clusterv1.Machine {
	all = slices.DeleteFunc(slices.Clone(all), func(m clusterv1.Machine) bool { return !m.Status.NodeRef.IsDefined() || neverUpdated(m) })
	slices.SortFunc(all, func(a, b clusterv1.Machine) int {
		return cmp.Or(cmp.Compare(worker(&a), worker(&b)), cmp.Compare(a.Name, b.Name))
	})
	if most < 0 || len(all) <= most {
		return all
	}
	planes := min(most, len(all)-countWorkers(all))
	out, rest := slices.Clone(all[:planes]), all[planes:]
	for i, left := 0, most-planes; i < left; i++ {
		out = append(out, rest[i*len(rest)/left])
	}
	return out
}

func worker(m *clusterv1.Machine) int {
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return 0
	}
	return 1
}

func countWorkers(all []clusterv1.Machine) (n int) {
	for i := range all {
		n += worker(&all[i])
	}
	return n
}
