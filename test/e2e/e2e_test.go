//go:build e2e

// Package e2e has the scenarios that refit is held to, with the real Cluster API managers and real nodes. All of them use
// one cluster, one after the other, and each leaves it healthy.
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/system"
)

// app is the directory whose files need no action.
const app = "/etc/refit-e2e"

// rebootDir is where files take a reboot.
const rebootDir = "/etc/refit-e2e/reboot"

// allowPaths are the --allow-paths of the servers.
var allowPaths = []string{app, "/etc/demo.conf", editedFile.Path, rebootDir + "=Reboot"}

// slowUnit takes its time to restart, so that something can happen in the middle of an update: longer, as long as slowHold is there.
const (
	slowUnit = "e2e-slow.service"
	slowHold = "/run/refit-e2e-hold"
)

const slowUnitFile = `[Unit]
Description=Takes its time to start
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'sleep 8; while [ -e ` + slowHold + ` ]; do sleep 0.2; done'
`

// suite is what the scenarios share.
type suite struct {
	*system.System
	// older is the version of Kubernetes that the cluster's machines begin with, if they are real ones.
	older string
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestInMemory runs the scenarios on Cluster API's in-memory backend.
func TestInMemory(t *testing.T) { run(t, inMemory...) }

// TestEverything runs the scenarios of TestInMemory and of TestRealMachines side by side, in one management cluster.
func TestEverything(t *testing.T) {
	run(t, append(slices.Clone(inMemory), realMachines)...)
}

// watchLimit is how many systemds, and others, may watch files at once for one user.
const watchLimit = "/proc/sys/fs/inotify/max_user_instances"

// roomForNodes has Linux let as many systemds watch files as there are nodes, which is more than it does by default, while the test runs.
func roomForNodes(t *testing.T) {
	t.Helper()
	was, err := os.ReadFile(watchLimit)
	require.NoError(t, err)
	instances, err := strconv.Atoi(strings.TrimSpace(string(was)))
	require.NoError(t, err)
	if instances >= 640 {
		return
	}
	if err := os.WriteFile(watchLimit, []byte("1024"), 0); err != nil {
		t.Logf("%s is %d, and nodes with a systemd may not come up: raise it to 1024, or run this as root", watchLimit, instances)
		return
	}
	t.Cleanup(func() { require.NoError(t, os.WriteFile(watchLimit, was, 0)) })
}

// timeToStop is how long a system may take to end.
const timeToStop = 12 * time.Minute

// run starts a system and runs the groups on it, each on a cluster of its own.
func run(t *testing.T, groups ...group) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if deadline, ok := t.Deadline(); ok { // go test would end at it without giving anything back
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-timeToStop))
		defer cancel()
	}
	defer assertNothingLeft(t)
	roomForNodes(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	began := time.Now()
	options := system.Options{
		Source: root, BinDir: filepath.Join(root, "bin"), Progress: t.Output(), Early: true,
		AllowPaths: allowPaths,
	}
	if groups[0].machines {
		options.Nodes = nodes.Machines
		options.MachineVersions = []string{groups[0].olderVersion(), newerVersion}
	}
	for _, g := range groups[1:] {
		if name := fmt.Sprintf("c%d", len(options.More)+2); !g.shared {
			more := lab.ClusterOptions{Namespace: "lab-" + name, Name: name, Backend: g.backend()}
			if g.workers {
				more.ControlPlaneReplicas = new(int32(1))
			}
			options.More = append(options.More, more)
		}
	}
	s, err := system.Start(ctx, options)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	suites, more := []*suite{{s, groups[0].olderVersion()}}, s.More
	for _, g := range groups[1:] {
		if g.shared {
			suites = append(suites, suites[0])
			continue
		}
		suites, more = append(suites, &suite{more[0], g.olderVersion()}), more[1:]
	}
	t.Run("clusters", func(t *testing.T) { // it ends with the last group
		for i, g := range groups {
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				require.NoError(t, suites[i].Ready())
				t.Logf("its cluster has come up after %s; the nodes are %s", time.Since(began).Round(time.Second), suites[i].Fleet.Kind())
				suites[i].runAll(ctx, t, g.scenarios)
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Run("no secret is where it does not belong", func(t *testing.T) { suites[0].tellsNoSecret(ctx, t) })
	t.Run("the audit logs are whole", func(t *testing.T) { suites[0].auditVerifies(ctx, t) })
	for i, g := range groups {
		if !g.shared {
			t.Run("the cluster of "+g.name+" shares no lease with others", func(t *testing.T) { suites[i].sharesNothing(ctx, t) })
		}
	}
}

func (g group) backend() lab.Backend {
	if g.machines {
		return lab.Docker
	}
	return lab.InMemory
}

func (g group) olderVersion() string { return cmp.Or(g.older, lab.OlderMachineVersion) }

func (u *suite) runAll(ctx context.Context, t *testing.T, scenarios []scenario) {
	for _, scenario := range scenarios {
		if !t.Run(scenario.name, func(t *testing.T) {
			began := time.Now()
			scenario.run(u, ctx, t)
			t.Logf("took %s", time.Since(began).Round(time.Second))
		}) {
			u.explainFailure(t)
			return // what comes later starts from a healthy cluster
		}
	}
}

// explainFailure prints what is unusual in the ends of refit's logs, and how the updates stand.
func (u *suite) explainFailure(t *testing.T) {
	for _, r := range u.Replicas {
		output, err := r.Output()
		require.NoError(t, err)
		lines := slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool { return strings.HasPrefix(line, "I") })
		t.Logf("what is unusual at the end of %s:\n%s", r.Log, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	updates, err := u.Updates(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	for _, mu := range updates {
		t.Logf("%s: %s %s: %s", mu.Name, mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
	}
}

func file(path, content string) bootstrapv1.File {
	return bootstrapv1.File{Path: path, Content: content, Owner: "root:root", Permissions: "0644"}
}

// rollOut waits until the cluster is as its specs say, and demands that no Machine was made again meanwhile.
func (u *suite) rollOut(ctx context.Context, t *testing.T, before map[string]types.UID) {
	t.Helper()
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	require.True(t, maps.Equal(before, after), "the Machines were %v and are %v", before, after)
}

func (u *suite) identities(ctx context.Context, t *testing.T) map[string]types.UID {
	t.Helper()
	ids, err := u.Identities(ctx)
	require.NoError(t, err)
	return ids
}

// machines are the names of the Machines, in order.
func (u *suite) machines(ctx context.Context, t *testing.T) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(u.identities(ctx, t)))
}

func (u *suite) workers(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var machines []clusterv1.Machine
	eventually(ctx, t, func(ctx context.Context) (err error) {
		machines, err = u.Cluster.WorkerMachines(ctx)
		return err
	})
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// everywhere demands the file on every node.
func (u *suite) everywhere(ctx context.Context, t *testing.T, f bootstrapv1.File) {
	t.Helper()
	for _, name := range u.machines(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
}

// nowhere demands that no node has the file.
func (u *suite) nowhere(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	for _, name := range u.machines(ctx, t) {
		_, err := u.Fleet.Node(name).ReadFile(ctx, path)
		require.ErrorIs(t, err, fs.ErrNotExist, "%s on %s", path, name)
	}
}

// onceEach demands that the node's journal shows each step of the digest done once.
func (u *suite) onceEach(ctx context.Context, t *testing.T, machine, digest string) []node.JournalEntry {
	t.Helper()
	journal, err := u.Fleet.Node(machine).Journal(ctx)
	require.NoError(t, err)
	done := map[string]int{}
	var entries []node.JournalEntry
	for _, e := range journal {
		if e.Digest != digest {
			continue
		}
		entries = append(entries, e)
		if e.Event == "step-done" {
			done[e.Step]++
		}
	}
	require.NotEmpty(t, done, "the journal shows no step for %s", digest)
	for step, n := range done {
		require.Equal(t, 1, n, "step %q of %s", step, machine)
	}
	return entries
}

// needsSystemd skips a scenario where the nodes have none.
func (u *suite) needsSystemd(t *testing.T) {
	t.Helper()
	if u.Fleet.Kind() == nodes.StandIns {
		t.Skipf("it needs nodes with systemd, and these are %s: run it where Docker answers", u.Fleet.Kind())
	}
}

// slowEverywhere puts a unit on all nodes that takes its time to restart.
func (u *suite) slowEverywhere(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range u.machines(ctx, t) {
		u.putUnit(ctx, t, name, slowUnit, slowUnitFile)
	}
}

// holdSlow has the slow unit of nodes not be started until the function is called that it returns.
func (u *suite) holdSlow(ctx context.Context, t *testing.T, names ...string) (release func()) {
	t.Helper()
	for _, name := range names {
		_, err := u.Fleet.Node(name).Exec(ctx, "touch", slowHold)
		require.NoError(t, err)
	}
	return func() {
		t.Helper()
		for _, name := range names {
			_, err := u.Fleet.Node(name).Exec(ctx, "rm", "-f", slowHold)
			require.NoError(t, err)
		}
	}
}

// putUnit puts a unit on a node, as an image has it.
func (u *suite) putUnit(ctx context.Context, t *testing.T, name, unit, content string) {
	t.Helper()
	n := u.Fleet.Node(name)
	require.NoError(t, n.WriteFile(ctx, "/etc/systemd/system/"+unit, nodeFile(content)))
	_, err := n.Exec(ctx, "systemctl", "daemon-reload")
	require.NoError(t, err)
}

func nodeFile(content string) nodes.File {
	return nodes.File{Content: []byte(content), Mode: "0644", Owner: "root:root"}
}

// slowFile is a file that restarts the slow unit.
func slowFile(content string) bootstrapv1.File {
	return file("/etc/systemd/system/"+slowUnit+".d/e2e.conf", "[Unit]\nDescription="+content+"\n")
}
