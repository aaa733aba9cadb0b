// benchfleet measures what a fleet costs a management cluster: how soon refit is ready, what it takes while all updates wait for their windows,
// and how soon a policy's edit starts those that it lets go. etcd, kube-apiserver and refit are real and on loopback; Machines, Clusters and policies
// are objects that nobody but refit looks at, and Cluster API's calls are made by this program, as often as refit's answers ask for.
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
)

type options struct {
	machines, clusters, namespaces, policies int
	connections, replicas, shards            int
	steady, settle                           time.Duration
	hold                                     string
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
	cmd.Flags().IntVar(&o.connections, "connections", 16, "Connections over which the hook is called.")
	cmd.Flags().IntVar(&o.replicas, "replicas", 1, "Replicas of refit. What is measured is that of all of them.")
	cmd.Flags().IntVar(&o.shards, "shards", 1, "Shards that several replicas divide the fleet into.")
	cmd.Flags().DurationVar(&o.steady, "steady", time.Minute, "For how long is measured what waiting costs.")
	cmd.Flags().DurationVar(&o.settle, "settle", 2*time.Minute, "How long before that, in which what is shown of the fleet is written for the last time.")
	cmd.Flags().StringVar(&o.hold, "hold", string(refitv1.HoldAll), "What the policies hold back: All, or Material, for which refit looks at nodes that do not answer here.")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func (o options) held() refitv1.Held { return refitv1.Held(o.hold) }

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

func (o options) run(ctx context.Context, out io.Writer) (err error) {
	if o.replicas < 1 || o.shards < 1 {
		return errors.New("there must be one replica and one shard at least")
	}
	if o.machines < o.clusters || o.clusters < o.policies || o.policies < o.namespaces || o.namespaces < 1 {
		return errors.New("there must be as many machines as clusters at least, clusters as policies, and policies as namespaces")
	}
	m, err := newManagement(ctx, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	began := time.Now()
	f, err := m.fill(ctx, o)
	if err != nil {
		return err
	}
	say(out, "made %d machines in %d clusters and %d namespaces, and %d policies: %.0f s", o.machines, o.clusters, o.namespaces, o.policies, time.Since(began).Seconds())
	s, err := m.startRefit(ctx, o)
	defer s.stop()
	if err != nil {
		return err
	}
	return measure(ctx, out, o, m, f, s)
}

// measure prints a line for each thing that is measured.
func measure(ctx context.Context, out io.Writer, o options, m *management, f *fleet, s servers) error {
	say(out, "| what | RSS MiB (most) | CPU %% of a core | API requests/s | |\n|---|---|---|---|---|")
	before, err := m.served(ctx)
	if err != nil {
		return err
	}
	line := func(what string, c cost, more string) {
		say(out, "| %s | %.0f (%.0f) | %.0f | %.1f | %s |", what, c.rss, c.mostRSS, c.cpu, c.requests, more)
		if now, err := m.served(ctx); err == nil {
			say(out, "  a second, of everybody: %s", now.since(before))
			before = now
		}
	}
	idle, err := s.cost(ctx, o.steady/2)
	if err != nil {
		return err
	}
	line("idle", idle, fmt.Sprintf("ready after %.1f s", s[0].readyAfter.Seconds()))

	calls := s.call(ctx, f, o.connections)
	defer calls.stop()
	began := time.Now()
	if err := s.awaitWaiting(ctx, out, o.machines); err != nil {
		return errors.Join(err, calls.err())
	}
	took := time.Since(began)
	rate := calls.take()
	line("all are asked for", s.since(idle), fmt.Sprintf("all wait after %.0f s; %s", took.Seconds(), rate))
	settling, err := s.cost(ctx, o.settle)
	if err != nil {
		return err
	}
	line("all wait, and statuses come to rest", settling, calls.take().String())
	waiting, err := s.cost(ctx, o.steady)
	if err != nil {
		return err
	}
	line("waiting, Cluster API calls", waiting, calls.take().String())
	if err := opens(ctx, m, f, s, line); err != nil {
		return err
	}
	calls.stop()
	if err := calls.err(); err != nil {
		return err
	}
	alone, err := s.cost(ctx, o.steady)
	if err != nil {
		return err
	}
	line("waiting, nobody calls", alone, "")
	return killed(ctx, s, line)
}

// killed ends the first replica as a crash does, and starts it again.
func killed(ctx context.Context, s servers, line func(string, cost, string)) error {
	first := s[0]
	if err := first.kill(); err != nil {
		return err
	}
	if others := s[1:]; len(others) > 0 {
		began := time.Now()
		if err := others.awaitShards(ctx, first.shards); err != nil {
			return err
		}
		line("one is killed", others.since(cost{}), fmt.Sprintf("the others have its shards after %.1f s", time.Since(began).Seconds()))
	}
	if err := first.start(ctx); err != nil {
		return err
	}
	line("and started again", s.since(cost{}), fmt.Sprintf("ready after %.1f s", first.readyAfter.Seconds()))
	return nil
}

// opens edits a policy so that it is open, and waits until its updates no longer wait for a window.
func opens(ctx context.Context, m *management, f *fleet, s servers, line func(string, cost, string)) error {
	before := s.since(cost{})
	began := time.Now()
	of, err := m.open(ctx, f)
	if err != nil {
		return err
	}
	var first time.Duration
	for {
		n, err := m.closed(ctx, of)
		if err != nil {
			return err
		}
		if n < len(of.updates) && first == 0 {
			first = time.Since(began)
		}
		if n == 0 {
			line("a policy is edited", s.since(before), fmt.Sprintf("of its %d updates the first goes on after %.1f s, the last after %.1f s", len(of.updates), first.Seconds(), time.Since(began).Seconds()))
			return nil
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("%d of %d updates still wait for a window, 5 minutes after their policy was opened", n, len(of.updates))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
