package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// updatesAtOnce is how many nodes are updated at once. More than a few are waiting for the two ends' CPU here.
const updatesAtOnce = 16

// benchNodes updates one file on each of n in-process nodes, with the real agent, and then writes one with OpenSSH, one node
// after another.
func benchNodes(ctx context.Context, out io.Writer, o options) (err error) {
	n := o.nodes
	agents, err := remote.LoadAgents(o.agents)
	if err != nil {
		return err
	}
	key, err := nodetest.NewKey()
	if err != nil {
		return err
	}
	all, stop, err := startNodes(n, key)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	say(out, "\n== A one-file update of %d nodes (in-process sshds that run the real agent), %d at once", n, updatesAtOnce)
	took, err := updateAll(ctx, all, agents, 1)
	if err != nil {
		return err
	}
	say(out, "   %-46s %6.1f nodes/s", "the first update, which brings the agent along", float64(n)/took.Seconds())
	took = 0
	for i := range 4 {
		t, err := updateAll(ctx, all, agents, i+2)
		if err != nil {
			return err
		}
		took += t
	}
	ours := float64(4*n) / took.Seconds()
	say(out, "   %-46s %6.1f nodes/s", "four more: planned, applied, journaled, proven", ours)
	if err := benchVerify(ctx, out, all[0], agents); err != nil {
		return err
	}
	theirs, err := openSSH(ctx, all[:min(n, 30)], key)
	if errors.Is(err, exec.ErrNotFound) {
		say(out, "   OpenSSH is not installed here, so there is nothing to compare with")
		return nil
	}
	if err != nil {
		return err
	}
	say(out, "   %-46s %6.1f nodes/s", "OpenSSH one after another, nothing proven", theirs)
	say(out, "   %-46s %6.1f", "ratio", ours/theirs)
	return nil
}

// startNodes starts n nodes. stop ends those that were started, also after an error.
func startNodes(n int, key []byte) (all []*nodetest.Node, stop func() error, err error) {
	stop = func() error {
		var errs []error
		for _, started := range all {
			errs = append(errs, started.Close())
		}
		return errors.Join(errs...)
	}
	for i := range n {
		started, err := nodetest.Start(nodetest.Options{Name: fmt.Sprintf("node-%d", i), UserKey: key})
		if err != nil {
			return all, stop, err
		}
		all = append(all, started)
	}
	return all, stop, nil
}

func updateAll(ctx context.Context, all []*nodetest.Node, agents *remote.Agents, generation int) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(updatesAtOnce)
	for _, n := range all {
		group.Go(func() error { return update(ctx, n, agents, generation) })
	}
	err := group.Wait()
	return time.Since(began), err
}

// update updates one in-process node.
func update(ctx context.Context, n *nodetest.Node, agents *remote.Agents, generation int) error {
	target, err := n.Target()
	if err != nil {
		return err
	}
	return updateNode(ctx, target, remote.ClientOptions{Agents: agents, Dir: "bin-refit"}, n.Name(), generation)
}

// updateNode does what the controller does on a node: plan, apply, and plan once more as the proof.
func updateNode(ctx context.Context, target remote.Target, options remote.ClientOptions, name string, generation int) error {
	conn, err := remote.SSHDialer{}.Dial(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the work is done
	client, err := remote.NewClient(conn, options)
	if err != nil {
		return err
	}
	r := node.Request{
		Protocol: node.Protocol, Machine: node.MachineID{Namespace: "bench", Name: name, UID: name},
		Digest: "generation-" + strconv.Itoa(generation), Token: int64(generation), OnConflict: node.Overwrite, WaitSeconds: 30,
		Rules:     disruption.Rules{Files: disruption.Table{{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.None}}}}},
		Resources: []node.Resource{{File: &node.File{Path: "/etc/app/conf", Content: fmt.Appendln(nil, generation), Owner: "root:root", Mode: "0644"}}},
	}
	if _, err := client.Plan(ctx, r); err != nil {
		return err
	}
	status, err := client.Apply(ctx, r)
	if err != nil {
		return err
	}
	if status.State != node.Succeeded {
		return fmt.Errorf("node %s: %s: %s", name, status.State, status.Message)
	}
	plan, err := client.Plan(ctx, r)
	if err == nil && len(plan.Changes)+len(plan.Drift) > 0 {
		err = fmt.Errorf("node %s does not show what was applied", name)
	}
	return err
}

// openSSH writes a file on each node with the ssh of this machine, and returns nodes a second.
func openSSH(ctx context.Context, all []*nodetest.Node, key []byte) (float64, error) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "refit-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	identity, known := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	var hosts []byte
	for _, n := range all {
		hosts = append(hosts, n.KnownHosts()...)
	}
	if err := errors.Join(os.WriteFile(identity, key, 0o600), os.WriteFile(known, hosts, 0o600)); err != nil {
		return 0, err
	}
	began := time.Now()
	for _, n := range all {
		cmd := exec.CommandContext(ctx, ssh, "-F", "none", "-i", identity, "-o", "BatchMode=yes", "-o", "UserKnownHostsFile="+known,
			"-p", strconv.Itoa(n.Address().Port), n.User()+"@"+n.Address().Host, "mkdir -p etc/app && cat > etc/app/by-hand")
		cmd.Stdin = bytes.NewReader([]byte("by hand\n"))
		if output, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("ssh to %s: %w: %s", n.Name(), err, output)
		}
	}
	return float64(len(all)) / time.Since(began).Seconds(), nil
}
