package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

var machine = node.MachineID{Namespace: "default", Name: "worker-1", UID: "uid-1"}

// testRules are short enough to be read at a glance.
var testRules = disruption.Rules{Files: disruption.Table{
	{Path: "/etc/quiet", Actions: []disruption.Action{{Type: disruption.None}}},
	{Path: "/etc/crio", Actions: []disruption.Action{{Type: disruption.Reload, Unit: "crio.service"}}},
	{Path: "/etc/kubelet", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service"}}},
	{Path: "/etc/ssh", Actions: []disruption.Action{{Type: disruption.Reload, Unit: "ssh.service"}}},
	{Path: "/etc/nftables", Actions: []disruption.Action{{Type: disruption.Reload, Unit: "nftables.service"}}},
	{Path: "/etc/drain", Actions: []disruption.Action{{Type: disruption.Drain}}},
	{Path: "/etc/boot", Actions: []disruption.Action{{Type: disruption.Reboot}}},
	{Path: "/etc/kubernetes/manifests", Actions: []disruption.Action{{Type: disruption.StaticPodRefresh}}},
	{Path: "/etc/systemd/system", Actions: []disruption.Action{
		{Type: disruption.DaemonReload}, {Type: disruption.Restart, Unit: disruption.UnitOfPath},
	}},
}}

// testNode is a directory that stands for a node, with an agent that works on runs in the test's own process.
type testNode struct {
	t interface {
		require.TestingT
		Helper()
	}
	root  string
	units *fakeUnits
	agent *Agent
	watch *fakeWatch
	// login is called while a run waits for one. It is refit's unless a test says otherwise.
	login func()
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	return layOut(t, t.TempDir())
}

func layOut(t interface {
	require.TestingT
	Helper()
}, root string,
) *testNode {
	n := &testNode{t: t, root: root, units: newFakeUnits(), watch: &fakeWatch{}}
	n.login = n.logIn
	n.put("/proc/uptime", "1000.00 1.00\n")
	n.put("/proc/sys/kernel/random/boot_id", "boot-1\n")
	n.put("/proc/1/stat", "1 (init) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 1 19996672 27\n")
	n.put("/etc/passwd", fmt.Sprintf("root:x:%d:%d::/root:/bin/sh\nother:x:4711:4711::/:/bin/sh\n", os.Getuid(), os.Getgid()))
	n.put("/etc/group", fmt.Sprintf("root:x:%d:\nother:x:4711:\n", os.Getgid()))
	n.agent = n.newAgent()
	return n
}

// newAgent returns another process, so to speak, on the same node.
func (n *testNode) newAgent() *Agent {
	n.t.Helper()
	var a *Agent
	a, err := New(Config{
		Root: n.root, Clock: upClock{testClock{}, n}, Units: n.units, Watch: n.watch, NoSync: true, ActionTimeout: time.Minute, Settle: -1,
		Launcher: LauncherFunc(func(ctx context.Context, _, verb string) error {
			if verb == verbStageRun {
				_, _ = a.RunStage(ctx)
				return nil
			}
			_, _ = a.Run(ctx) // how it ended is in the status
			return nil
		}),
	})
	require.NoError(n.t, err)
	return a
}

func (n *testNode) put(path, content string) {
	n.t.Helper()
	hosttest.NewFiles(n.t, n.root).Put(path, content)
}

// program gives the node a program: a shell script.
func (n *testNode) program(name, script string) {
	n.t.Helper()
	n.put("/usr/sbin/"+name, "#!/bin/sh\n"+script+"\n")
	require.NoError(n.t, os.Chmod(filepath.Join(n.root, "/usr/sbin", name), 0o755))
}

func (n *testNode) delete(path string) {
	n.t.Helper()
	require.NoError(n.t, os.Remove(filepath.Join(n.root, path)))
}

// content returns what is at path, or "(missing)".
func (n *testNode) content(path string) string {
	n.t.Helper()
	return hosttest.NewFiles(n.t, n.root).Get(path)
}

func (n *testNode) plan(req node.Request) node.Plan {
	n.t.Helper()
	plan, err := n.agent.Plan(context.Background(), req)
	require.NoError(n.t, err)
	return plan
}

func (n *testNode) apply(req node.Request) node.Status {
	n.t.Helper()
	status, err := n.agent.Apply(context.Background(), req)
	require.NoError(n.t, err)
	return status
}

func (n *testNode) succeed(req node.Request) node.Status {
	n.t.Helper()
	status := n.apply(req)
	require.Equal(n.t, node.Succeeded, status.State, status.Message)
	return status
}

func (n *testNode) fail(req node.Request) node.Status {
	n.t.Helper()
	status := n.apply(req)
	require.Equal(n.t, node.Failed, status.State, status.Message)
	return status
}

func (n *testNode) refuse(req node.Request, reason node.ErrorReason) string {
	n.t.Helper()
	_, err := n.agent.Apply(context.Background(), req)
	var reported *node.AgentError
	require.ErrorAs(n.t, err, &reported)
	require.Equal(n.t, reason, reported.Reason, reported.Message)
	return reported.Message
}

// events returns "event step" of the whole journal.
func (n *testNode) events() []string {
	n.t.Helper()
	entries, err := n.agent.state.journalFrom(0)
	require.NoError(n.t, err)
	var out []string
	for _, e := range entries {
		line := e.Event
		if e.Step != "" {
			line += " " + e.Step
		}
		out = append(out, line)
	}
	return out
}

func (n *testNode) count(event string) int {
	n.t.Helper()
	count := 0
	for _, e := range n.events() {
		if e == event {
			count++
		}
	}
	return count
}

// noLeftovers requires that no temporary file and no content is left behind.
func (n *testNode) noLeftovers() {
	n.t.Helper()
	require.NoError(n.t, filepath.WalkDir(n.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && host.TempForm.MatchString(d.Name()) {
			err = fmt.Errorf("%s was left behind", path)
		}
		return err
	}))
	require.NoFileExists(n.t, n.agent.state.path("run.json"))
}

// request wants files, given as path and content in turn, under a digest that is also the token's.
func request(token int64, pathsAndContents ...string) node.Request {
	req := node.Request{
		Protocol: node.Protocol, Machine: machine, Digest: fmt.Sprintf("digest-%d", token), Token: token,
		Rules: testRules, OnConflict: node.Overwrite, Baseline: &node.Baseline{},
	}
	for pair := range slices.Chunk(pathsAndContents, 2) {
		req.Resources = append(req.Resources, wanted(pair[0], pair[1]))
	}
	return req
}

func wanted(path, content string) node.Resource {
	return node.Resource{File: &node.File{Path: path, Content: []byte(content), Owner: "root:root", Mode: "0644"}}
}

func laidDown(path, content string) node.BaselineFile {
	e := entryOf(content)
	return node.BaselineFile{Path: path, SHA256: e.SHA256, Owner: e.Owner, Mode: e.Mode}
}

type testClock struct{}

func (testClock) Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func (testClock) Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(min(d, time.Millisecond)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fakeUnits is a service manager all of whose units are well until a test says otherwise.
type fakeUnits struct {
	mu     sync.Mutex
	states map[string]host.UnitState
	fails  map[string]error // by "verb unit"
	calls  []string
	needs  map[string][]string
	system string   // the state of the whole
	lasts  []string // the units that a list shows
	unmet  []string // the units that systemd does not start, for their conditions
	follow bool     // whether the states follow what is done
	hook   func(ctx context.Context, call string) error
}

func newFakeUnits() *fakeUnits {
	return &fakeUnits{states: map[string]host.UnitState{}, fails: map[string]error{}, system: "running"}
}

func (f *fakeUnits) System(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.system == "" {
		return "", errors.New("exit status 1")
	}
	return f.system, nil
}

func (f *fakeUnits) Show(_ context.Context, unit string) (host.UnitState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.states[unit]; ok {
		return s, nil
	}
	return host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: "1"}, nil
}

// List implements host.Lister.
func (f *fakeUnits) List(ctx context.Context, names ...string) ([]host.LoadedUnit, error) {
	var units []host.LoadedUnit
	if len(names) == 0 {
		names = f.lasts
	}
	for _, name := range names {
		state, _ := f.Show(ctx, name)
		units = append(units, host.LoadedUnit{Name: name, UnitState: state, Lasting: slices.Contains(f.lasts, name), Needs: f.needs[name], Unmet: slices.Contains(f.unmet, name)})
	}
	return units, nil
}

func (f *fakeUnits) Do(ctx context.Context, verb, unit string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := verb
	if unit != "" {
		call += " " + unit
	}
	f.calls = append(f.calls, call)
	if f.hook != nil {
		if err := f.hook(ctx, call); err != nil {
			return err
		}
	}
	if err := f.fails[call]; err != nil || !f.follow || verb == "start" && slices.Contains(f.unmet, unit) {
		return err
	}
	f.states[unit] = hosttest.Done(f.states[unit], verb)
	return nil
}
