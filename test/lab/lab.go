package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/process"
)

const (
	// startTimeout is what each program gets to become healthy. They take seconds; a busy machine may take longer.
	startTimeout = 2 * time.Minute

	// stopGrace is what each manager gets to end by itself. It has nothing to lose.
	stopGrace = 5 * time.Second
)

// A Backend is what machines are.
type Backend string

const (
	// InMemory machines exist in the infrastructure manager's memory only. They need no container engine.
	InMemory Backend = "in-memory"
	// Docker machines are containers that kubeadm makes nodes of a real cluster.
	Docker Backend = "docker"
)

// Options say how to start a Lab. The zero value is useful.
type Options struct {
	// Backend is InMemory if empty.
	Backend Backend
	// Dir is where the lab keeps its kubeconfig, logs and data. Without it that is a temporary directory, which Stop
	// removes again.
	Dir string
	// Progress is told what happens, for people to read.
	Progress io.Writer
	// CRDPaths are files or directories with further CRDs to install.
	CRDPaths []string
	// MachineVersions are the versions of Kubernetes that machines of the Docker backend can have; the first is that of a cluster for
	// which none is named. Without any they are OlderMachineVersion and NewerMachineVersion.
	MachineVersions []string
	// ManagerArgs are further command-line arguments, by manager.
	ManagerArgs map[Program][]string
	// Env is further environment of the API server and the managers.
	Env []string
}

// A Lab is a running management cluster.
type Lab struct {
	// Config reaches the API server as an administrator.
	Config *rest.Config
	// Client is a client for it, which knows all of Cluster API's types.
	Client client.Client
	// Kubeconfig is the path of a file that says the same as Config.
	Kubeconfig string
	// LogDir holds one file for each program.
	LogDir string
	// Binaries are the programs in use.
	Binaries Binaries

	dir       string
	options   Options
	launcher  *process.Launcher
	server    *apiserver.Server
	processes []*process.Process
	failed    chan error

	diagnostics map[Program]int // ports
	machines    *machines       // nil if they are in memory

	stopping chan struct{}
	// starting is held by whoever starts something when Start has returned, so that Stop does not miss it.
	starting sync.Mutex
	undo     []func() error // what Stop does, last first
	stopOnce sync.Once
	stopErr  error
}

// Start starts a lab and returns when all of it is healthy. The lab lives until Stop is called or ctx ends, whichever comes
// first. When Start fails, it leaves nothing behind but the logs that its error names.
func Start(ctx context.Context, options Options) (*Lab, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	switch options.Backend {
	case InMemory, Docker:
	case "":
		options.Backend = InMemory
	default:
		return nil, fmt.Errorf("no backend %q: there are %s and %s", options.Backend, InMemory, Docker)
	}
	if err := options.setMachineVersions(); err != nil {
		return nil, err
	}
	lab := &Lab{
		options:     options,
		failed:      make(chan error, len(managers)),
		diagnostics: map[Program]int{},
		stopping:    make(chan struct{}),
	}
	err := lab.start(ctx)
	if options.Dir == "" && (err == nil || ctx.Err() != nil) {
		// What goes last is what was there first. The logs of a failure stay, for it names them.
		lab.undo = append([]func() error{func() error { return os.RemoveAll(lab.dir) }}, lab.undo...)
	}
	if err != nil {
		return nil, errors.Join(err, lab.Stop())
	}
	context.AfterFunc(ctx, func() { _ = lab.Stop() }) // a later call of Stop returns the error again
	return lab, nil
}

// setMachineVersions sets the versions of machines where nobody has, and returns an error if there are no such machines.
func (o *Options) setMachineVersions() error {
	if len(o.MachineVersions) == 0 {
		o.MachineVersions = []string{OlderMachineVersion, NewerMachineVersion}
	}
	for _, version := range o.MachineVersions {
		if _, ok := machineModules[version]; !ok {
			return fmt.Errorf("no machines have Kubernetes %s: there are %s", version, strings.Join(slices.Sorted(maps.Keys(machineModules)), ", "))
		}
	}
	return nil
}

// Failed tells of managers that ended although nobody stopped them.
func (l *Lab) Failed() <-chan error { return l.failed }

// Stop ends everything that Start started, and returns when it has ended. It may be called any number of times.
func (l *Lab) Stop() error {
	l.stopOnce.Do(func() {
		close(l.stopping)
		l.starting.Lock()
		defer l.starting.Unlock()
		var errs []error
		for i := len(l.undo) - 1; i >= 0; i-- {
			errs = append(errs, l.undo[i]())
		}
		if err := errors.Join(errs...); err != nil {
			l.stopErr = fmt.Errorf("stopping the lab: %w", err)
		}
	})
	return l.stopErr
}

func (l *Lab) start(ctx context.Context) error {
	begin := time.Now()
	if err := l.prepare(ctx); err != nil {
		return err
	}
	binaries, err := Build(ctx, l.options.Progress, labPrograms()...)
	if err != nil {
		return err
	}
	l.Binaries = binaries
	if l.options.Backend == Docker {
		if err := l.buildMachines(ctx); err != nil {
			return err
		}
	}
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	l.launcher = process.NewLauncher()
	l.onStop(func() error { l.launcher.Close(); return nil })
	if l.options.Backend == Docker {
		if err := l.startEngine(ctx); err != nil {
			return err
		}
	}

	l.progress("starting etcd and kube-apiserver")
	if err := l.startAPIServer(ctx); err != nil {
		return err
	}
	l.progress("installing Cluster API")
	installed, err := l.install(ctx)
	if err != nil {
		return err
	}
	l.progress("starting %d managers", len(installed))
	if err := l.startManagers(ctx, installed); err != nil {
		return err
	}
	l.progress("the management cluster is ready after %s", time.Since(begin).Round(time.Second))
	return nil
}

// prepare makes the lab's directories.
func (l *Lab) prepare(ctx context.Context) error {
	l.dir = l.options.Dir
	if l.dir == "" {
		dir, err := os.MkdirTemp("", "refit-lab-")
		if err != nil {
			return fmt.Errorf("making the lab's directory: %w", err)
		}
		l.dir = dir
	}
	dir, err := filepath.Abs(l.dir)
	if err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	l.dir, l.LogDir, l.Kubeconfig = dir, filepath.Join(dir, "logs"), filepath.Join(dir, "kubeconfig")
	if err := os.MkdirAll(l.LogDir, 0o755); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	return ctx.Err()
}

// takeTurn waits until no other lab of this user is running.
func (l *Lab) takeTurn(ctx context.Context) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("making the cache directory: %w", err)
	}
	release, err := lock(ctx, filepath.Join(cache, "running.lock"), func() {
		l.progress("waiting for another lab to stop: they share port %d", debugPort)
	})
	if err != nil {
		return err
	}
	l.onStop(func() error { release(); return nil })
	return checkDebugPort()
}

// startManagers starts the managers side by side and waits for all of them.
func (l *Lab) startManagers(ctx context.Context, installed []installation) error {
	l.onStop(func() error { return process.StopAll(l.processes, stopGrace) })
	free, err := FreePorts(2 * len(installed))
	if err != nil {
		return err
	}
	health := make([]int, len(installed))
	for i, in := range installed {
		p := ports{webhook: in.webhooks.LocalServingPort, health: free[2*i], diagnostics: free[2*i+1]}
		started, err := l.startManager(in.manager, in.webhooks.LocalServingCertDir, p)
		if err != nil {
			return err
		}
		l.processes = append(l.processes, started)
		health[i], l.diagnostics[in.manager.program] = p.health, p.diagnostics
	}
	for i, p := range l.processes {
		if err := waitHealthy(ctx, p, health[i]); err != nil {
			return err
		}
	}
	for _, p := range l.processes {
		go l.watch(p)
	}
	return nil
}

// watch reports p's end unless the lab is being stopped.
func (l *Lab) watch(p *process.Process) {
	select {
	case <-l.stopping:
	case <-p.Done():
		l.failed <- p.Died()
	}
}

func (l *Lab) onStop(f func() error) { l.undo = append(l.undo, f) }

func (l *Lab) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(l.options.Progress, format+"\n", args...)
}

// BinDir holds kubectl.
func (l *Lab) BinDir() string { return filepath.Dir(l.Binaries[Kubectl]) }
