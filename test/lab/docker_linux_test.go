//go:build e2e

package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/process"
)

// TestDocker starts a lab with kubeadm machines, gets a shell on each by the address that its Machine reports, and sees that
// Stop leaves nothing behind.
func TestDocker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Minute)
	defer cancel()
	before := traces(t)
	begin := time.Now()
	lab, err := Start(ctx, Options{Backend: Docker, Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	t.Logf("lab up after %s", since(begin))
	started := process.Children()

	begin = time.Now()
	cluster, err := lab.CreateCluster(ctx, ClusterOptions{})
	require.NoError(t, err)
	t.Logf("3 + 2 machines available after %s", since(begin))
	assertMachines(t, lab, cluster)
	assertNodesReady(t, cluster)

	begin = time.Now()
	require.NoError(t, lab.Stop())
	t.Logf("stopped after %s", since(begin))
	for _, pid := range started {
		assert.False(t, process.Alive(pid), "process %d is still there", pid)
	}
	assert.Empty(t, process.Children())
	assert.Equal(t, before, traces(t), "what the lab has made is gone")
}

// TestDockerInterrupted ends the context while machines are being made.
func TestDockerInterrupted(t *testing.T) {
	before := traces(t)
	ctx, cancel := context.WithCancel(t.Context())
	lab, err := Start(ctx, Options{Backend: Docker, Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	time.AfterFunc(30*time.Second, cancel)
	_, err = lab.CreateCluster(ctx, ClusterOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, lab.Stop(), "it waits for the one that the context has begun")
	assert.Equal(t, before, traces(t), "what the lab has made is gone")
}

// TestDockerKilled has the next lab remove what one that was killed has left.
func TestDockerKilled(t *testing.T) {
	before := traces(t)
	program := filepath.Join(t.TempDir(), "lab")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/lab").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.CommandContext(t.Context(), program, "up", "--backend", string(Docker), "--cluster", "--dir", t.TempDir())
	progress, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(progress)
	for lines.Scan() && !strings.Contains(lines.Text(), "0 of 3 control-plane machines") {
		t.Log(lines.Text())
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NotEqual(t, before, traces(t))

	lab, err := Start(t.Context(), Options{Backend: Docker, Progress: t.Output()})
	require.NoError(t, err)
	require.NoError(t, lab.Stop())
	assert.Equal(t, before, traces(t), "what both labs have made is gone")
}

// assertMachines logs in to each machine over SSH, where its Machine says that it is.
func assertMachines(t *testing.T, lab *Lab, cluster *Cluster) {
	t.Helper()
	machines, err := cluster.Machines(t.Context())
	require.NoError(t, err)
	require.Len(t, machines, 5)
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	fleet, err := nodes.Adopt(t.Context(), nodes.AdoptOptions{
		Engine: lab.Engine(), Names: names, PrivateKey: lab.MachineKey(), Progress: t.Output(),
	})
	require.NoError(t, err)
	for _, m := range machines {
		assert.Equal(t, string(clusterv1.MachinePhaseRunning), m.Status.Phase)
		target, err := fleet.Node(m.Name).Target()
		require.NoError(t, err)
		target.Addresses = []remote.Address{reported(t, &m)}
		connection, err := remote.SSHDialer{}.Dial(t.Context(), target)
		require.NoError(t, err)
		require.NoError(t, connection.Close())

		version, err := fleet.Node(m.Name).Exec(t.Context(), "sudo", "-u", nodes.User, "sudo", "-n", "kubelet", "--version")
		require.NoError(t, err)
		assert.Equal(t, "Kubernetes "+OlderMachineVersion, strings.TrimSpace(string(version)))
	}
}

func reported(t *testing.T, machine *clusterv1.Machine) remote.Address {
	t.Helper()
	for _, a := range machine.Status.Addresses {
		if a.Type == clusterv1.MachineInternalIP {
			address, err := remote.ParseAddress(a.Address)
			require.NoError(t, err)
			return address
		}
	}
	require.Failf(t, "no address", "%s reports none", machine.Name)
	return remote.Address{}
}

func assertNodesReady(t *testing.T, cluster *Cluster) {
	t.Helper()
	workload, err := cluster.WorkloadClient(t.Context())
	require.NoError(t, err)
	// Conditions flap while the control plane settles.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var list corev1.NodeList
		if !assert.NoError(c, workload.List(t.Context(), &list)) || !assert.Len(c, list.Items, 5) {
			return
		}
		for _, n := range list.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					assert.Equal(c, corev1.ConditionTrue, condition.Status, n.Name)
				}
			}
		}
	}, 2*time.Minute, time.Second)
}

// traces are what an engine can leave on a machine: links, mounts, rules, cgroups, files, and containers' processes.
func traces(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	for _, command := range []string{
		"ip -o link | awk '{ print $2 }' | grep -v '^veth' | sort",
		"awk '{ print $5 }' /proc/self/mountinfo | grep -v refit-test | sort",
		"if command -v iptables >/dev/null; then iptables -S; iptables -t nat -S; fi",
		"find /sys/fs/cgroup -maxdepth 2 -name 'refit*'",
		"ls -d /run/refit* 2>/dev/null || true",
		"ps -eo args | grep -E '^([^ ]*/)?(dockerd|containerd(-shim[^ ]*)?) .*refit' || true",
		"docker network ls --format '{{.Name}}' 2>/dev/null | sort",
		"docker ps --all --quiet --no-trunc 2>/dev/null | sort",
		"docker volume ls --quiet 2>/dev/null | sort",
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		out, err := cmd.Output()
		require.NoError(t, err, command)
		_, _ = fmt.Fprintf(&all, "%s\n%s", command, out)
	}
	return all.String()
}

func since(begin time.Time) time.Duration { return time.Since(begin).Round(time.Second) }
