package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
)

// Options say how to start a Management.
type Options struct {
	// Source is the root of the project's source.
	Source string
	// BinDir holds refit and the agents in agents/, as `make build` puts them there.
	BinDir string
	// Progress gets a line for each thing that takes time.
	Progress io.Writer
}

// Management is a management cluster into which refit can be installed: a lab with Cluster API and cert-manager, in which Deployments of refit run.
type Management struct {
	Lab *lab.Lab
	// Client knows the types of Cluster API and of refit.
	Client client.Client
	// Dir is for files of tests, and goes with Stop. Pods' logs are in pods.
	Dir string

	options  Options
	binaries lab.Binaries
	undo     []func() error
}

// Start starts a management cluster without refit.
func Start(ctx context.Context, o Options) (*Management, error) {
	m := &Management{options: o}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// Stop ends all that Start has started, last first.
func (m *Management) Stop() error {
	var errs []error
	for i := len(m.undo) - 1; i >= 0; i-- {
		errs = append(errs, m.undo[i]())
	}
	m.undo = nil
	return errors.Join(errs...)
}

func (m *Management) onStop(f func() error) { m.undo = append(m.undo, f) }

func (m *Management) start(ctx context.Context) error {
	var err error
	if m.binaries, err = lab.Build(ctx, m.options.Progress, lab.Kubectl, lab.Clusterctl, lab.Helm, lab.CertManager); err != nil {
		return err
	}
	if m.Dir, err = os.MkdirTemp("", "refit-install-"); err != nil {
		return err
	}
	m.onStop(func() error { return os.RemoveAll(m.Dir) })
	services, err := ServeServices()
	if err != nil {
		return err
	}
	m.onStop(services.Close)
	certManager, err := lab.ModuleDir(ctx, lab.CertManager, "github.com/cert-manager/cert-manager")
	if err != nil {
		return err
	}
	m.Lab, err = lab.Start(ctx, lab.Options{
		Progress: m.options.Progress, Env: services.Env(), CRDPaths: []string{filepath.Join(certManager, "deploy", "crds")},
	})
	if err != nil {
		return err
	}
	m.onStop(m.Lab.Stop)
	if err := m.connect(); err != nil {
		return err
	}
	services.Client = m.Client
	if _, err := m.Lab.RunControllers(ctx, "deployment-controller", "replicaset-controller", "namespace-controller", "garbage-collector-controller"); err != nil {
		return err
	}
	if err := m.startCertManager(); err != nil {
		return err
	}
	return m.runPods(ctx)
}

func (m *Management) connect() error {
	scheme, err := lab.Scheme()
	if err != nil {
		return err
	}
	if err := refitv1.AddToScheme(scheme); err != nil {
		return err
	}
	m.Client, err = client.New(m.Lab.Config, client.Options{Scheme: scheme})
	return err
}

func (m *Management) startCertManager() error {
	launcher := process.NewLauncher()
	m.onStop(func() error { launcher.Close(); return nil })
	p, err := launcher.Start("cert-manager", filepath.Join(m.Lab.LogDir, "cert-manager.log"), m.binaries[lab.CertManager],
		nil, append(os.Environ(), "KUBECONFIG="+m.Lab.Kubeconfig))
	if err != nil {
		return err
	}
	m.onStop(p.Kill)
	return nil
}

func (m *Management) runPods(ctx context.Context) error {
	dir := filepath.Join(m.Dir, "pods")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	kubelet := &Kubelet{Client: m.Client, Admin: m.Lab.Config, BinDir: m.options.BinDir, Dir: dir, Progress: m.options.Progress}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { kubelet.Run(running) })
	m.onStop(func() error { cancel(); done.Wait(); return nil })
	return nil
}

// Run runs one of the programs as a user would, in a directory, with further environment, and returns what it says.
func (m *Management) Run(ctx context.Context, dir string, env []string, p lab.Program, args ...string) (string, error) {
	return m.run(ctx, dir, env, m.binaries[p], args...)
}

// Refit runs the command.
func (m *Management) Refit(ctx context.Context, args ...string) (string, error) {
	return m.run(ctx, "", nil, filepath.Join(m.options.BinDir, "refit"), args...)
}

func (m *Management) run(ctx context.Context, dir string, env []string, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.Dir, "KUBECONFIG=" + m.Lab.Kubeconfig, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
	}, env...)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil {
		return all.String(), fmt.Errorf("%s %q: %w\n%s", filepath.Base(path), args, err, process.LastLines(all.Bytes(), 30))
	}
	return all.String(), nil
}
