package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// defaultActionTimeout is how long an action may take. A kubelet or a container runtime restarts within seconds.
	defaultActionTimeout = 2 * time.Minute
	// defaultChangeTimeout is how long a change of what is no file may take. kubeadm waits five minutes for each static pod.
	defaultChangeTimeout = 30 * time.Minute
	// defaultSettle is how long a restarted service is watched. One that can't read its configuration exits within it.
	defaultSettle = 2 * time.Second
)

// Clock tells the time and lets it pass.
type Clock interface {
	Now() time.Time
	// Wait returns after d, or with ctx's error when ctx ends before.
	Wait(ctx context.Context, d time.Duration) error
}

// Config is what an Agent needs to know about where it runs. Only Root and Clock are required.
type Config struct {
	// Root is the directory that everything on the node is under.
	Root string
	// Clock tells the time.
	Clock Clock
	// Version is the agent's own.
	Version string
	// Hostname is the node's.
	Hostname string
	// Executable is the path of the agent's own binary.
	Executable string
	// Units controls systemd's units. Nil: the systemctl below Root does.
	Units host.Units
	// Launcher starts what works on a run. Nil: a transient systemd unit does where there is systemd, else a process of
	// its own.
	Launcher Launcher
	// Watch sees to it that a run that has changed the way in goes on without whoever has asked for it. Nil: systemd does where there
	// is systemd, else nothing.
	Watch Watch
	// ActionTimeout is how long one action may take. 0: two minutes.
	ActionTimeout time.Duration
	// ChangeTimeout is how long a change of what is no file may take. 0: half an hour, since kubeadm waits for static pods.
	ChangeTimeout time.Duration
	// Settle is how long restarted services are watched. 0: two seconds where there is systemd. Negative: not at all.
	Settle time.Duration
	// NoSync leaves out what makes writes survive a loss of power. It is for directories that stand for nodes.
	NoSync bool
}

// Agent plans and applies on one node.
type Agent struct {
	cfg   Config
	root  host.Root
	disk  host.Disk
	state stateDir
	// kinds bring what is no file.
	kinds    map[node.Kind]kind.Kind
	releases releases
	// probes ask what of the node works, see probe.All.
	probes func(renewed bool) []probe.Probe
	// boundary is called at each point at which tests let the agent die. An error from it is death: nothing may be done
	// after it.
	boundary func(where string) error
}

// New returns an Agent for the node below cfg.Root.
func New(cfg Config) (*Agent, error) {
	if !filepath.IsAbs(cfg.Root) {
		return nil, invalidf("root %q is not an absolute path", cfg.Root)
	}
	cfg.Root = filepath.Clean(cfg.Root)
	root := host.Root{Dir: cfg.Root}
	if err := checkState(root); err != nil {
		return nil, err
	}
	state, err := root.Resolve(stateRoot)
	if err != nil {
		return nil, err
	}
	if cfg.ActionTimeout == 0 {
		cfg.ActionTimeout = defaultActionTimeout
	}
	if cfg.ChangeTimeout == 0 {
		cfg.ChangeTimeout = defaultChangeTimeout
	}
	if cfg.Settle == 0 && hasSystemd(cfg.Root) {
		cfg.Settle = defaultSettle
	}
	if cfg.Units == nil {
		cfg.Units = host.FindSystemctl(root)
	}
	cfg.Units = host.Limit(cfg.Units, cfg.ActionTimeout)
	if cfg.Launcher == nil {
		if err := checkProgram(cfg.Executable); err != nil {
			return nil, err
		}
		cfg.Launcher = newLauncher(cfg.Root, cfg.Executable, filepath.Join(state, "run.log"))
	}
	d := host.Disk{NoSync: cfg.NoSync}
	cfg.Watch = cmp.Or(cfg.Watch, newWatch(cfg, d))
	root.Private = state
	h := host.Host{Root: root, Disk: d, Clock: cfg.Clock, Units: cfg.Units}
	store := release.New(h)
	return &Agent{
		releases: store,
		cfg:      cfg,
		root:     root,
		disk:     d,
		state:    stateDir{root: host.Root{Dir: cfg.Root}, dir: state, disk: d},
		kinds:    kinds(h, store),
		probes:   func(renewed bool) []probe.Probe { return probe.All(h, renewed) },
		boundary: func(string) error { return nil },
	}, nil
}

// Identity returns which agent this is.
func (a *Agent) Identity() (node.Identity, error) {
	id := node.Identity{Protocol: node.Protocol, Version: a.cfg.Version, Hostname: a.cfg.Hostname}
	f, err := os.Open(a.cfg.Executable)
	if err != nil {
		return id, fmt.Errorf("read the agent's own binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return id, fmt.Errorf("read the agent's own binary: %w", err)
	}
	id.SHA256 = hex.EncodeToString(h.Sum(nil))
	return id, nil
}

// checkMachine returns an error if the node has a record, or a run, of another Machine.
func (a *Agent) checkMachine(m node.MachineID) error {
	rec, err := a.state.loadRecord()
	if err != nil {
		return err
	}
	known := node.MachineID{}
	if rec != nil {
		known = rec.Machine
	} else if last, err := a.state.loadStatus(); err != nil {
		return err
	} else if last != nil {
		known = last.Machine
	}
	if known.UID != "" && !m.Is(known) {
		return reasonf(node.ReasonOtherMachine,
			"this node has a record of Machine %s/%s (%s), not of %s/%s (%s); if the host was reused, remove %s on it",
			known.Namespace, known.Name, known.UID, m.Namespace, m.Name, m.UID, stateRoot)
	}
	return nil
}
