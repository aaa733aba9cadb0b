package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/test/engine"
	"github.com/capi-refit/refit/test/nodes/kubeadm"
)

// machineNetwork is where the infrastructure manager puts machines.
const machineNetwork = "kind"

// imagesVariable is the environment variable that, with the value "built", has no image of machines come from a registry.
const imagesVariable = "REFIT_IMAGES"

// machines are what the Docker backend has beside the managers.
type machines struct {
	engine engine.Engine
	images *kubeadm.Images
	key    []byte // PEM
	// unfit says why the user's own engine can't run machines. If it can, it is nil.
	unfit error
}

// buildMachines builds what machines are made of.
func (l *Lab) buildMachines(ctx context.Context) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("making the cache directory: %w", err)
	}
	release, err := lock(ctx, filepath.Join(cache, "images.lock"), func() {
		l.progress("waiting for another process that is making images…")
	})
	if err != nil {
		return err
	}
	defer release()
	key, err := nodetest.NewKey()
	if err != nil {
		return err
	}
	l.machines = &machines{key: key}
	if l.machines.unfit, err = l.tryEngine(ctx); err != nil {
		return err
	}
	var published []string
	if l.machines.unfit == nil && os.Getenv(imagesVariable) != "built" {
		published = publishedVersions(ctx, l.options.MachineVersions)
	}
	built := slices.DeleteFunc(slices.Clone(l.options.MachineVersions), func(v string) bool { return slices.Contains(published, v) })
	programs, err := buildMachinePrograms(ctx, l.options.Progress, built)
	if err != nil {
		return err
	}
	l.machines.images, err = kubeadm.Prepare(ctx, kubeadm.Options{
		Dir: filepath.Join(filepath.Dir(cache), "kubeadm"), Programs: programs, Published: published, Progress: l.options.Progress,
	})
	return err
}

// publishedVersions returns those of some versions for which a registry gives kind's images.
func publishedVersions(ctx context.Context, versions []string) []string {
	var published []string
	for _, version := range versions {
		if kubeadm.Published(ctx, engine.Engine{}, version) {
			published = append(published, version)
		}
	}
	return published
}

// startEngine has an engine ready for machines: the user's own if it can run them, else a second one.
func (l *Lab) startEngine(ctx context.Context) error {
	begin := time.Now()
	if l.machines.unfit == nil {
		if err := l.useEngine(ctx); err != nil {
			return err
		}
	} else {
		l.progress("starting a second Docker engine, because the first can't run machines (%s)", briefly(l.machines.unfit))
		if err := l.startPrivateEngine(ctx); err != nil {
			return errors.Join(err, fmt.Errorf("the first engine can't run machines: %w", l.machines.unfit))
		}
	}
	if err := l.machines.images.Load(ctx, l.machines.engine); err != nil {
		return err
	}
	l.progress("the engine for machines is ready after %s", time.Since(begin).Round(time.Second))
	return nil
}

func (l *Lab) startPrivateEngine(ctx context.Context) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	private, err := engine.StartPrivate(ctx, engine.PrivateOptions{
		Dir: filepath.Join(filepath.Dir(cache), "engine"), Log: filepath.Join(l.LogDir, "dockerd.log"),
		Network: machineNetwork, Launcher: l.launcher,
	})
	if err != nil {
		return err
	}
	l.onStop(private.Stop)
	l.machines.engine = private.Engine
	return nil
}

// tryEngine says why the user's engine can't run machines, or nil.
func (l *Lab) tryEngine(ctx context.Context) (unfit, err error) {
	probe, err := cached(ctx, l.options.Progress, "pause", machineSources["pause"])
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(probe)
	if err != nil {
		return nil, fmt.Errorf("reading a program to try: %w", err)
	}
	if unfit := (engine.Engine{}).Answers(ctx); unfit != nil {
		return unfit, ctx.Err()
	}
	return engine.Engine{}.Privileged(ctx, program, "-v"), ctx.Err()
}

// useEngine uses the user's engine.
func (l *Lab) useEngine(ctx context.Context) error {
	var err error
	if l.machines.engine, err = (engine.Engine{}).Resolve(ctx); err != nil {
		return err
	}
	// Only one lab runs at a time: what is there now was left by one that was killed.
	if err := l.machines.remove(ctx); err != nil {
		return fmt.Errorf("removing machines of an earlier lab: %w", err)
	}
	l.onStop(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		return errors.Join(l.machines.remove(ctx), l.machines.removeNetwork(ctx))
	})
	return l.machines.ensureNetwork(ctx)
}

// remove removes all machines from the user's engine, and nothing else: they are told by their images.
func (m *machines) remove(ctx context.Context) error {
	out, err := m.engine.Run(ctx, nil, "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Image}}")
	if err != nil {
		return err
	}
	var ids []string
	for line := range strings.Lines(string(out)) {
		id, image, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(image, kubeadm.Repository+"/") {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err = m.engine.Run(ctx, nil, append([]string{"rm", "--force", "--volumes"}, ids...)...)
	return err
}

// networkLabel is on the network that a lab has made, which may remove it, even if it was another lab that was killed.
const networkLabel = "dev.capi-refit.lab"

// ensureNetwork makes the machines' network unless it is there, for kind uses one of the same name.
func (m *machines) ensureNetwork(ctx context.Context) error {
	if _, err := m.engine.Run(ctx, nil, "network", "inspect", machineNetwork); err == nil {
		return nil
	}
	prefix, err := engine.FreePrefix()
	if err != nil {
		return err
	}
	// Nodes find each other's pods by the last byte of their addresses, so 254 of them have to do.
	_, err = m.engine.Run(ctx, nil, "network", "create", "--label", networkLabel, "--subnet", prefix+".1.0/24", machineNetwork)
	return err
}

// removeNetwork removes the machines' network if a lab has made it.
func (m *machines) removeNetwork(ctx context.Context) error {
	out, err := m.engine.Run(ctx, nil, "network", "ls", "--quiet", "--filter", "label="+networkLabel)
	if ids := strings.Fields(string(out)); err == nil && len(ids) > 0 {
		_, err = m.engine.Run(ctx, nil, append([]string{"network", "rm"}, ids...)...)
	}
	return err
}

// MachineKey is the private key, in PEM, that lets user refit into all machines of the Docker backend.
func (l *Lab) MachineKey() []byte {
	if l.machines == nil {
		return nil
	}
	return l.machines.key
}

// Engine runs the machines of the Docker backend: each Machine is a container of its name.
func (l *Lab) Engine() engine.Engine {
	if l.machines == nil {
		return engine.Engine{}
	}
	return l.machines.engine
}

// MachineImages are what the machines of the Docker backend are made of.
func (l *Lab) MachineImages() *kubeadm.Images {
	if l.machines == nil {
		return nil
	}
	return l.machines.images
}

// values are what the Docker backend adds to the manifest of a cluster.
func (m *machines) values(version string) (map[string]any, error) {
	node, err := m.images.Node(version)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(m.key)
	if err != nil {
		return nil, fmt.Errorf("reading the machines' key: %w", err)
	}
	repository, tag := m.images.LoadBalancer()
	return map[string]any{
		"Image": node, "LoadBalancerRepository": repository, "LoadBalancerTag": tag,
		"AuthorizedKey": strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))),
	}, nil
}

// briefly is the end of the first line of what an engine says, where the cause is.
func briefly(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	parts := strings.Split(line, ": ")
	return strings.Join(parts[max(0, len(parts)-3):], ": ")
}
