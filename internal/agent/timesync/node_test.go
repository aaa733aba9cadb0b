package timesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	debianConf = "/etc/chrony/chrony.conf"
	redHatConf = "/etc/chrony.conf"
	timesyncdU = "systemd-timesyncd.service"
)

// testNode is a directory that stands for a node.
type testNode struct {
	hosttest.Files
	t     hosttest.T
	units *fakeUnits
	kind  *Kind
}

func newNode(t hosttest.T, root string) *testNode {
	t.Helper()
	n := &testNode{Files: hosttest.NewFiles(t, root), t: t, units: newFakeUnits()}
	n.kind = New(host.Host{Root: host.Root{Dir: root}, Disk: host.Disk{NoSync: true}, Units: n.units})
	n.Put("/etc/passwd", fmt.Sprintf("root:x:%d:%d::/root:/bin/sh\n", os.Getuid(), os.Getgid()))
	n.Put("/etc/group", fmt.Sprintf("root:x:%d:\n", os.Getgid()))
	return n
}

var running = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Type: "simple"}

// withTimesyncd has the node keep its time by systemd-timesyncd.
func (n *testNode) withTimesyncd() *testNode {
	n.t.Helper()
	n.Put("/usr/lib/systemd/systemd-timesyncd", "")
	n.Put(timesyncdConf, "[Time]\n#NTP=\n")
	n.units.States[timesyncdU] = running
	return n
}

// withChrony has the node keep its time by chrony.
func (n *testNode) withChrony(unit, conf string) *testNode {
	n.t.Helper()
	n.Put("/usr/sbin/chronyd", "")
	n.Put(conf, distribution)
	n.units.States[unit] = running
	return n
}

const distribution = "# Welcome to the chrony configuration file.\nconfdir /etc/chrony/conf.d\n\npool 2.debian.pool.ntp.org iburst\n Server  10.0.0.1 prefer\nmakestep 1 3\n"

// snapshot is all that there is about time on the node.
func (n *testNode) snapshot() string {
	n.t.Helper()
	var out strings.Builder
	for _, p := range []string{debianConf, redHatConf, timesyncdConf, dropIn, cloudInitDropIn} {
		state, err := n.kind.host.Observe(p)
		require.NoError(n.t, err)
		fmt.Fprintln(&out, p, state)
	}
	return out.String() + fmt.Sprint(n.units.States)
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

// fakeUnits is a service manager that may die.
type fakeUnits struct {
	hosttest.Units
	// dies says at which call from now systemctl dies, and after whether it has done its work by then. -1: never.
	dies  int
	after bool
}

func newFakeUnits() *fakeUnits {
	f := &fakeUnits{Units: hosttest.Units{States: map[string]host.UnitState{}}, dies: -1}
	killed := func(after bool) error {
		if f.dies == -1 && f.after == after {
			return errors.New("signal: killed")
		}
		return nil
	}
	f.Before = func(_, unit string) error {
		f.dies--
		if err := killed(false); err != nil {
			return err
		}
		if _, ok := f.States[unit]; !ok {
			return errors.New("exit status 5")
		}
		return nil
	}
	f.After = func(string, string) error { return killed(true) }
	return f
}

func (f *fakeUnits) took() []string {
	calls := f.Calls
	f.Calls = nil
	slices.Sort(calls)
	return calls
}
