package machineupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// walkNode is a machine with the real agent on it. Work that restarts a unit stays under way until somebody asks how it stands, and work that
// waits for a login until that has come; a reboot begins when the next command comes, which it cuts off.
type walkNode struct {
	t     require.TestingT
	root  string
	clock *clocktesting.FakeClock
	// reached is called before a unit is restarted, and before the node is rebooted.
	reached func(what string)

	mu        sync.Mutex
	installed bool
	full      int // for how many commands no space is left
	boots     int
	due       bool // it was asked to reboot
	away      int  // for how many dials it does not answer
	units     []string
	lasts     []string // the units that stay active
	failed    map[string]bool
	// restarting is closed when the work of a run comes to its restart, which goes on when goOn is closed. ended is when it has
	// ended. Meanwhile waits tells that it waits for something.
	restarting, goOn, ended, waits chan struct{}
}

func newWalkNode(t require.TestingT, root string, clock *clocktesting.FakeClock) *walkNode {
	n := &walkNode{t: t, root: root, clock: clock}
	n.put("/etc/passwd", fmt.Sprintf("root:x:%d:%d::/root:/bin/sh\n", os.Getuid(), os.Getgid()))
	n.put("/etc/group", fmt.Sprintf("root:x:%d:\n", os.Getgid()))
	n.boot()
	return n
}

func (n *walkNode) put(path, content string) {
	host := filepath.Join(n.root, path)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(host), 0o755))
	require.NoError(n.t, os.WriteFile(host, []byte(content), 0o644))
}

func (n *walkNode) boot() {
	n.boots++
	n.due = false
	n.put("/proc/sys/kernel/random/boot_id", fmt.Sprintf("boot-%d\n", n.boots))
	n.put("/proc/uptime", "1000.00 1.00\n")
	n.put("/proc/1/stat", "1 (init) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 27 19996672 27\n")
}

// up reports whether the node's kubelet could say that it is Ready.
func (n *walkNode) up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.away == 0
}

// fill has the next commands of the agent find no space left.
func (n *walkNode) fill(commands int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.full = commands
}

// dial connects, or says that the node does not answer.
func (n *walkNode) dial() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away > 0 {
		n.away--
		return errRefused
	}
	return nil
}

// run runs a command of the server's.
func (n *walkNode) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	verb := verbOf(ctx)
	switch {
	case n.due:
		n.boot()
		n.away = 2
		return fmt.Errorf("%w: the node reboots", remote.ErrConnectionLost)
	case verb == "uname":
		_, err := fmt.Fprintln(stdout, "x86_64")
		return err
	case n.full > 0 && verb == "push":
		n.full--
		return &remote.CommandError{Status: 71, Stderr: "cat: write error: No space left on device"}
	case n.full > 0 && n.installed:
		n.full--
		return json.NewEncoder(stdout).Encode(node.Answer{Error: &node.AgentError{Reason: node.ReasonInternal, Message: "no space left on device"}})
	case verb == "push":
		n.installed = true
		return nil
	case !n.installed:
		return &remote.CommandError{Status: 127}
	case verb == "status":
		n.proceed()
	}
	if agent.Main(ctx, n.config(), []string{verb}, stdin, stdout) != 0 {
		return &remote.CommandError{Status: 1}
	}
	return nil
}

// verbOf returns what the command of a remote.Client that is about to be run is for.
func verbOf(ctx context.Context) string {
	command, _ := remote.CommandFrom(ctx)
	if command.Verb == remote.VerbArchitecture {
		return "uname"
	}
	return command.Verb
}

func (n *walkNode) config() agent.Config {
	cfg := agent.Config{Root: n.root, Clock: nodeClock{n.clock, n}, Units: walkUnits{n}, Settle: -1, NoSync: true}
	cfg.Launcher = agent.LauncherFunc(func(context.Context, string, string) error {
		worker, err := agent.New(cfg)
		if err != nil {
			return err
		}
		n.restarting, n.goOn, n.ended, n.waits = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		ended := n.ended
		go func() {
			defer close(ended)
			_, _ = worker.Run(context.Background()) // how it went is in the status
		}()
		n.await(n.restarting)
		return nil
	})
	return cfg
}

// await returns when the work has come to its restart, to a login that it waits for, or to its end.
func (n *walkNode) await(restarting <-chan struct{}) {
	for {
		select {
		case <-restarting:
			return
		case <-n.ended:
			n.goOn = nil
			return
		case <-n.waits:
			if n.awaitsLogin() {
				return
			}
		}
	}
}

// proceed has work go on that is under way.
func (n *walkNode) proceed() {
	if n.goOn == nil {
		return
	}
	select {
	case <-n.goOn:
	default:
		close(n.goOn)
	}
	n.await(nil)
}

// end has what is still under way end. Nobody logs in any more.
func (n *walkNode) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put("/proc/uptime", "1000000.00 1.00\n")
	for n.goOn != nil {
		n.proceed()
	}
}

// awaitsLogin reports whether work that is under way waits for a login.
func (n *walkNode) awaitsLogin() bool {
	awaits := false
	for _, e := range n.journal() {
		awaits = e.Event == "login-awaited" || awaits && !strings.HasPrefix(e.Event, "step-") && e.Event != "run-done"
	}
	return awaits
}

// journal returns the entries of the node's journal, which is the witness of what was done there.
func (n *walkNode) journal() []node.JournalEntry {
	var out bytes.Buffer
	a, err := agent.New(n.config())
	require.NoError(n.t, err)
	require.NoError(n.t, a.Journal(&out))
	var entries []node.JournalEntry
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var e node.JournalEntry
		require.NoError(n.t, decoder.Decode(&e))
		entries = append(entries, e)
	}
	return entries
}

// requireClean requires that nothing is under way, and that no temporary file is left.
func (n *walkNode) requireClean(where string) {
	if n.goOn != nil && !n.awaitsLogin() { // nobody had to ask for its end
		n.proceed()
	}
	require.Nil(n.t, n.goOn, "%s: a run is under way", where)
	require.NoFileExists(n.t, filepath.Join(n.root, "var/lib/refit/run.json"), where)
	require.NoError(n.t, filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".refit-") {
			err = fmt.Errorf("%s was left behind, %s", path, where)
		}
		return err
	}))
}

// breakUnit has a unit fail, or be well again.
func (n *walkNode) breakUnit(unit string, broken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = map[string]bool{unit: broken}
}

// walkUnits is the node's systemd. All of its units are well that nobody breaks.
type walkUnits struct{ n *walkNode }

// Show implements host.Units.
func (u walkUnits) Show(_ context.Context, unit string) (host.UnitState, error) {
	state := host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: "1"}
	if u.n.failed[unit] {
		state.ActiveState = "failed"
	}
	return state, nil
}

// List implements host.Lister.
func (u walkUnits) List(ctx context.Context, names ...string) ([]host.LoadedUnit, error) {
	if len(names) == 0 {
		names = u.n.lasts
	}
	units := make([]host.LoadedUnit, len(names))
	for i, name := range names {
		state, _ := u.Show(ctx, name)
		units[i] = host.LoadedUnit{Name: name, UnitState: state, Lasting: true}
	}
	return units, nil
}

// System implements host.Units.
func (walkUnits) System(context.Context) (string, error) { return "running", nil }

// Do implements host.Units. Whoever runs the command that has started the work waits for it, with the node locked.
func (u walkUnits) Do(_ context.Context, verb, unit string) error {
	u.n.reached(strings.TrimSpace(verb + " " + unit))
	u.n.units = append(u.n.units, strings.TrimSpace(verb+" "+unit))
	switch verb {
	case "reboot":
		u.n.due = true
	case "restart":
		goOn := u.n.goOn
		close(u.n.restarting)
		<-goOn
	}
	return nil
}

// nodeClock is the node's. Who waits by it does not have to.
type nodeClock struct {
	*clocktesting.FakeClock
	n *walkNode
}

// Wait implements agent.Clock.
func (c nodeClock) Wait(ctx context.Context, _ time.Duration) error {
	select {
	case c.n.waits <- struct{}{}:
	case <-time.After(100 * time.Microsecond):
	}
	return ctx.Err()
}
