package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capi-refit/refit/test/process"
)

const (
	// stateDir has what belongs to a running engine only. It is the same for all users and cache directories, so that an engine
	// always finds what an earlier one may have left.
	stateDir = "/run/refit-engine"

	startTimeout = 2 * time.Minute
	stopTimeout  = 5 * time.Minute
)

//go:embed runtime.sh
var runtimeScript []byte

// Private is an engine of our own. The user's containers, images, networks and packet filter are none of its business.
type Private struct {
	Engine
	// Network is a network with name NetworkName, whose containers reach each other and this machine, but nothing else.
	Network string

	process *process.Process
	dir     string
}

// PrivateOptions say how to start a private engine.
type PrivateOptions struct {
	// Dir keeps images from one start to the next.
	Dir string
	// Log is the file with what the engine says.
	Log string
	// Network is the name of the one network that the engine has.
	Network string
	// Launcher has the engine end with this process.
	Launcher *process.Launcher
	// Progress gets a line for each thing that takes time.
	Progress io.Writer
}

// StartPrivate starts an engine whose containers, though privileged, do without CAP_SYS_RESOURCE. It takes root on Linux and
// dockerd. What an engine left behind that was killed is removed first. Only one can run at a time: the caller sees to that.
func StartPrivate(ctx context.Context, o PrivateOptions) (*Private, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil, errors.New("a second Docker engine takes root on Linux")
	}
	for _, program := range []string{"dockerd", "runc", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a second Docker engine: %w", err)
		}
	}
	p := &Private{Engine: Engine{Host: "unix://" + filepath.Join(stateDir, "docker.sock")}, Network: o.Network, dir: o.Dir}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Private) start(ctx context.Context, o PrivateOptions) error {
	if err := p.clean(ctx); err != nil {
		return fmt.Errorf("removing what an earlier engine left: %w", err)
	}
	config, err := p.configure()
	if err != nil {
		return err
	}
	prefix, err := FreePrefix()
	if err != nil {
		return err
	}
	if err := addBridge(ctx, defaultBridge, prefix+".0.1/24"); err != nil {
		return err
	}
	p.process, err = o.Launcher.Start("dockerd", o.Log, "dockerd", []string{"--config-file", config}, os.Environ())
	if err != nil {
		return err
	}
	if err := p.await(ctx); err != nil {
		return err
	}
	// The data that is kept has the containers of a process that was killed.
	if err := p.empty(ctx); err != nil {
		return fmt.Errorf("removing what an earlier engine left: %w", err)
	}
	if _, err := p.Run(ctx, nil, "network", "create", "--subnet", prefix+".1.0/24",
		"--opt", "com.docker.network.bridge.name="+networkBridge, p.Network); err != nil {
		return err
	}
	return enclose(ctx, networkBridge)
}

// configure writes what the engine is told, and the runtime that it uses.
func (p *Private) configure() (string, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", fmt.Errorf("making a place for the engine: %w", err)
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return "", fmt.Errorf("making a place for the engine's images: %w", err)
	}
	script := filepath.Join(stateDir, "runtime")
	config, err := json.MarshalIndent(map[string]any{
		"hosts": []string{p.Host}, "data-root": p.dir, "exec-root": filepath.Join(stateDir, "exec"),
		"pidfile": filepath.Join(stateDir, "pid"), "bridge": defaultBridge,
		// Engines share their chains in the packet filter, and a starting one makes them again. This one stays away from them.
		"iptables": false, "ip6tables": false, "ip-masq": false,
		// The driver that takes any cgroup as a parent.
		"exec-opts": []string{"native.cgroupdriver=cgroupfs"}, "cgroup-parent": "/" + cgroupParent,
		"runtimes": map[string]any{"refit": map[string]string{"path": script}}, "default-runtime": "refit",
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("configuring the engine: %w", err)
	}
	path := filepath.Join(stateDir, "daemon.json")
	return path, errors.Join(os.WriteFile(script, runtimeScript, 0o700), os.WriteFile(path, config, 0o600))
}

// await waits until the engine answers.
func (p *Private) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.process.Done():
			return false, p.process.Died()
		default:
			last = p.Answers(ctx)
			return last == nil, nil
		}
	})
	if err != nil {
		return fmt.Errorf("starting a Docker engine: %w", errors.Join(err, last))
	}
	return nil
}

// empty removes everything from a running engine but its images.
func (p *Private) empty(ctx context.Context) error {
	if err := p.Remove(ctx); err != nil {
		return err
	}
	_, err := p.Run(ctx, nil, "network", "prune", "--force")
	if err != nil {
		return err
	}
	_, err = p.Run(ctx, nil, "volume", "prune", "--force")
	return err
}

// Stop removes all containers and networks and ends the engine. Nothing of it is left on the machine but its images.
func (p *Private) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	if p.process != nil {
		select {
		case <-p.process.Done():
		default:
			errs = append(errs, p.empty(ctx), p.process.Stop(30*time.Second))
		}
	}
	return errors.Join(append(errs, p.clean(ctx))...)
}
