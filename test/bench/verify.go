package main

import (
	"context"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// verifications is how often the agent is asked for its version each way.
const verifications = 25

// benchVerify compares a call of an agent that is on the node, which is verified there each time, with one that is run by its name.
func benchVerify(ctx context.Context, out io.Writer, n *nodetest.Node, agents *remote.Agents) error {
	target, err := n.Target()
	if err != nil {
		return err
	}
	conn, err := remote.SSHDialer{}.Dial(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the work is done
	client, err := remote.NewClient(conn, remote.ClientOptions{Agents: agents, Dir: "bin-refit"})
	if err != nil {
		return err
	}
	agent, err := agents.For(runtime.GOARCH)
	if err != nil {
		return err
	}
	verified := func() error { _, err := client.Identity(ctx); return err }
	named := func() error { return conn.Run(ctx, "./bin-refit/"+agent.Name()+" version", nil, io.Discard) }
	var took [2][]time.Duration
	for range verifications {
		for i, call := range []func() error{verified, named} {
			began := time.Now()
			if err := call(); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	with, without := slices.Sorted(slices.Values(took[0]))[verifications/2], slices.Sorted(slices.Values(took[1]))[verifications/2]
	say(out, "   %-46s %6.1f ms", "one call of the agent, verified on the node", float64(with.Microseconds())/1000)
	say(out, "   %-46s %6.1f ms", "the same, run by its name alone", float64(without.Microseconds())/1000)
	return nil
}
