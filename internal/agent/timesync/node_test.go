package timesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// tb is what a test and a check of rapid's have in common.
type tb interface {
	require.TestingT
	Helper()
}

const (
	debianConf = "/etc/chrony/chrony.conf"
	redHatConf = "/etc/chrony.conf"
	timesyncdU = "systemd-timesyncd.service"
)

// testNode is a directory that stands for a node.
type testNode struct {
	t     tb
	root  string
	units *fakeUnits
	kind  *Kind
}

func newNode(t tb, root string) *testNode {
	t.Helper()
	n := &testNode{t: t, root: root, units: &fakeUnits{states: map[string]host.UnitState{}, dies: -1}}
	n.kind = New(host.Host{Root: host.Root{Dir: root}, Disk: host.Disk{NoSync: true}, Units: n.units})
	n.put("/etc/passwd", fmt.Sprintf("root:x:%d:%d::/root:/bin/sh\n", os.Getuid(), os.Getgid()))
	n.put("/etc/group", fmt.Sprintf("root:x:%d:\n", os.Getgid()))
	return n
}

var running = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Type: "simple"}

// withTimesyncd has the node keep its time by systemd-timesyncd.
func (n *testNode) withTimesyncd() *testNode {
	n.t.Helper()
	n.put("/usr/lib/systemd/systemd-timesyncd", "")
	n.put(timesyncdConf, "[Time]\n#NTP=\n")
	n.units.states[timesyncdU] = running
	return n
}

// withChrony has the node keep its time by chrony.
func (n *testNode) withChrony(unit, conf string) *testNode {
	n.t.Helper()
	n.put("/usr/sbin/chronyd", "")
	n.put(conf, distribution)
	n.units.states[unit] = running
	return n
}

const distribution = "# Welcome to the chrony configuration file.\nconfdir /etc/chrony/conf.d\n\npool 2.debian.pool.ntp.org iburst\n Server  10.0.0.1 prefer\nmakestep 1 3\n"

func (n *testNode) put(p, content string) {
	n.t.Helper()
	at := filepath.Join(n.root, p)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(n.t, os.WriteFile(at, []byte(content), 0o644))
	require.NoError(n.t, os.Chmod(at, 0o644))
}

func (n *testNode) read(p string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.root, p))
	if os.IsNotExist(err) {
		return "(missing)"
	}
	require.NoError(n.t, err)
	return string(data)
}

// snapshot is all that there is about time on the node.
func (n *testNode) snapshot() string {
	n.t.Helper()
	var out strings.Builder
	for _, p := range []string{debianConf, redHatConf, timesyncdConf, dropIn, cloudInitDropIn} {
		state, err := n.kind.host.Observe(p)
		require.NoError(n.t, err)
		fmt.Fprintln(&out, p, state)
	}
	return out.String() + fmt.Sprint(n.units.states)
}

func ask(was, desired *node.NTP) kind.Question {
	q := kind.Question{Known: true, Rules: disruption.BuiltinRules()}
	if was != nil {
		q.Was = &node.Resource{NTP: was}
	}
	if desired != nil {
		q.Desired = &node.Resource{NTP: desired}
	}
	return q
}

func (n *testNode) plan(q kind.Question) kind.Answer {
	n.t.Helper()
	a, err := n.kind.Plan(context.Background(), q)
	require.NoError(n.t, err)
	return a
}

func change(q kind.Question, a kind.Answer) kind.Change {
	return kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before}
}

// make plans and makes, and requires that the node then shows it.
func (n *testNode) make(q kind.Question) kind.Answer {
	n.t.Helper()
	a := n.plan(q)
	require.Empty(n.t, a.Blocked)
	require.NotEmpty(n.t, a.Operation)
	_, err := n.kind.Make(context.Background(), change(q, a))
	require.NoError(n.t, err)
	n.shows(q, a.Drift)
	return a
}

// shows requires what the agent requires when it verifies a change.
func (n *testNode) shows(q kind.Question, drift []string) {
	n.t.Helper()
	if q.Desired != nil {
		q.Was = q.Desired
	}
	q.Known = true
	a := n.plan(q)
	require.Empty(n.t, a.Operation)
	require.Subset(n.t, drift, a.Drift)
}

// fakeUnits is a service manager whose units do what they are told.
type fakeUnits struct {
	states map[string]host.UnitState
	calls  []string
	// dies says at which call from now systemctl dies, and after whether it has done its work by then. -1: never.
	dies  int
	after bool
}

func (f *fakeUnits) System(context.Context) (string, error) { return "running", nil }

func (f *fakeUnits) Show(_ context.Context, unit string) (host.UnitState, error) {
	if s, ok := f.states[unit]; ok {
		return s, nil
	}
	return host.UnitState{LoadState: "not-found", ActiveState: "inactive"}, nil
}

func (f *fakeUnits) Do(_ context.Context, verb, unit string) error {
	f.calls = append(f.calls, verb+" "+unit)
	f.dies--
	dead := f.dies == -1
	if dead && !f.after {
		return errors.New("signal: killed")
	}
	s, ok := f.states[unit]
	if !ok {
		return errors.New("exit status 5")
	}
	switch verb {
	case "enable", "disable":
		s.UnitFileState = verb + "d"
	case "start":
		s.ActiveState = "active"
	case "stop":
		s.ActiveState = "inactive"
	}
	f.states[unit] = s
	if dead {
		return errors.New("signal: killed")
	}
	return nil
}

func (f *fakeUnits) took() []string {
	calls := f.calls
	f.calls = nil
	slices.Sort(calls)
	return calls
}
