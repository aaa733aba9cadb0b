// benchfleet measures what a fleet costs a management cluster: how soon refit is ready, what it takes while all updates wait for their windows,
// and how soon updates start when a policy is edited, when a window opens, beside nodes that never answer, and when a replica is killed. etcd, kube-apiserver
// and refit are real and on loopback; Machines, Clusters and policies are objects that nobody but refit looks at, and Cluster API's calls are made by this
// program, as often as refit's answers ask for. Nodes are sshds in this program, with a fake of the agent, and the same kube-apiserver is that of all clusters.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/bench/floor"
)

type options struct {
	machines, clusters, namespaces, policies int
	connections, replicas, shards, dark      int
	steady, settle                           time.Duration
	hold                                     string
	provisioned                              bool
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	cmd := &cobra.Command{
		Use: "benchfleet", Short: "Measure what a fleet costs", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().IntVar(&o.machines, "machines", 30000, "Machines, spread over the clusters.")
	cmd.Flags().IntVar(&o.clusters, "clusters", 500, "Clusters, spread over the namespaces.")
	cmd.Flags().IntVar(&o.namespaces, "namespaces", 20, "Namespaces.")
	cmd.Flags().IntVar(&o.policies, "policies", 200, "Policies, all closed, spread over the namespaces; each has its part of the clusters.")
	cmd.Flags().IntVar(&o.dark, "dark", 1000, "Nodes that never answer, of policies that are opened.")
	cmd.Flags().IntVar(&o.connections, "connections", 16, "Connections over which the hook is called.")
	cmd.Flags().IntVar(&o.replicas, "replicas", 1, "Replicas of refit. What is measured is that of all of them.")
	cmd.Flags().IntVar(&o.shards, "shards", 1, "Shards that several replicas divide the fleet into.")
	cmd.Flags().DurationVar(&o.steady, "steady", time.Minute, "For how long is measured what waiting costs.")
	cmd.Flags().DurationVar(&o.settle, "settle", 2*time.Minute, "How long before that, in which what is shown of the fleet is written for the last time.")
	cmd.Flags().StringVar(&o.hold, "hold", string(refitv1.HoldAll), "What the policies hold back: All, or Material, for which refit looks at nodes that do not answer here.")
	cmd.Flags().BoolVar(&o.provisioned, "provisioned", false, "Have Clusters be provisioned, so that refit connects to them: to the API server of the management cluster, which counts what each is asked.")
	cmd.AddCommand(floor.NewCommand())
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func (o options) held() refitv1.Held { return refitv1.Held(o.hold) }

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// check returns an error unless such a fleet can be made.
func (o options) check() error {
	if o.replicas < 1 || o.shards < 1 {
		return errors.New("there must be one replica and one shard at least")
	}
	if o.dark < 0 {
		return errors.New("there can't be less than no dark nodes")
	}
	if o.policies < openedOnes {
		return fmt.Errorf("there must be %d policies at least, which are opened", openedOnes)
	}
	if o.machines < o.clusters || o.clusters < o.policies || o.policies < o.namespaces || o.namespaces < 1 {
		return errors.New("there must be as many machines as clusters at least, clusters as policies, and policies as namespaces")
	}
	return nil
}

func (o options) run(ctx context.Context, out io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	m, err := newManagement(ctx, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	n, err := newNodes()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	f, err := newFleet(o, n)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := m.fill(ctx, o, f); err != nil {
		return err
	}
	say(out, "made %d machines in %d clusters and %d namespaces, and %d policies: %.0f s", o.machines, o.clusters, o.namespaces, o.policies, time.Since(began).Seconds())
	say(out, "%d nodes answer, and %d are dark", len(n.well), len(n.dark))
	s, err := m.startRefit(ctx, o)
	defer s.stop()
	if err != nil {
		return err
	}
	return (&bench{o: o, m: m, f: f, s: s, out: out}).measure(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
