package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/test/process"
)

// Scheme returns a new scheme with Kubernetes' own types and Cluster API's.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme, runtimev1.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return scheme, nil
}

// startAPIServer starts etcd and kube-apiserver, and makes what is needed to talk to them.
func (l *Lab) startAPIServer(ctx context.Context) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	env := &envtest.Environment{Scheme: scheme, ControlPlaneStartTimeout: startTimeout}
	env.ControlPlane.KubectlPath = l.Binaries[Kubectl]
	if err := l.configureEtcd(env); err != nil {
		return err
	}
	if err := l.configureAPIServer(env); err != nil {
		return err
	}
	l.onStop(env.Stop)
	err = l.launcher.Do(func() error {
		l.Config, err = env.Start()
		return err
	})
	if err != nil {
		return fmt.Errorf("starting the API server: %w; its log, %s, ends with:\n%s",
			err, l.logFile(KubeAPIServer), process.Tail(l.logFile(KubeAPIServer), 15))
	}
	if err := os.WriteFile(l.Kubeconfig, env.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	l.Client, err = client.New(l.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return ctx.Err()
}

func (l *Lab) configureEtcd(env *envtest.Environment) error {
	path, data, log, err := l.prepareProgram(Etcd)
	if err != nil {
		return err
	}
	env.ControlPlane.Etcd = &envtest.Etcd{Path: path, DataDir: data, Out: log, Err: log}
	// Nothing here outlives the lab, so nothing has to reach the disk.
	env.ControlPlane.Etcd.Configure().Enable("unsafe-no-fsync")
	return nil
}

func (l *Lab) configureAPIServer(env *envtest.Environment) error {
	path, certs, log, err := l.prepareProgram(KubeAPIServer)
	if err != nil {
		return err
	}
	server := env.ControlPlane.GetAPIServer()
	server.Path, server.CertDir, server.Out, server.Err = path, certs, log, log
	return nil
}

// prepareProgram returns what envtest has to know of a program that it starts: its path, an empty directory, an open log.
func (l *Lab) prepareProgram(p Program) (path, dir string, log *os.File, err error) {
	dir = filepath.Join(l.dir, string(p))
	// What an earlier lab left here would not go together with this one's certificates.
	if err := os.RemoveAll(dir); err != nil {
		return "", "", nil, fmt.Errorf("clearing %s's directory: %w", p, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", nil, fmt.Errorf("making %s's directory: %w", p, err)
	}
	l.onStop(func() error { return os.RemoveAll(dir) })

	standIn := filepath.Join(l.dir, "start-"+string(p))
	l.onStop(func() error { return os.RemoveAll(standIn) })
	path, err = process.Leashed(l.Binaries[p], standIn)
	if err != nil {
		return "", "", nil, err
	}
	log, err = os.Create(l.logFile(p))
	if err != nil {
		return "", "", nil, fmt.Errorf("opening %s's log: %w", p, err)
	}
	l.onStop(log.Close)
	return path, dir, log, nil
}

func (l *Lab) logFile(p Program) string { return filepath.Join(l.LogDir, string(p)+".log") }

// An installation is a manager with what was installed for it.
type installation struct {
	manager  manager
	webhooks *envtest.WebhookInstallOptions
}

// install installs everything but the managers themselves.
func (l *Lab) install(ctx context.Context) ([]installation, error) {
	free, err := FreePorts(len(managers))
	if err != nil {
		return nil, err
	}
	var installed []installation
	for i, m := range managers {
		webhooks, err := l.installManifests(ctx, m, free[i])
		if err != nil {
			return nil, fmt.Errorf("installing %s: %w", m.program, err)
		}
		installed = append(installed, installation{m, webhooks})
	}
	if len(l.options.CRDPaths) > 0 {
		_, err := envtest.InstallCRDs(l.Config, envtest.CRDInstallOptions{
			Paths: l.options.CRDPaths, ErrorIfPathMissing: true, Scheme: l.Client.Scheme(), MaxTime: startTimeout,
		})
		if err != nil {
			return nil, fmt.Errorf("installing further CRDs: %w", err)
		}
	}
	return installed, nil
}

// installManifests installs m's namespace, webhooks and CRDs, all of which point at port.
func (l *Lab) installManifests(ctx context.Context, m manager, port int) (*envtest.WebhookInstallOptions, error) {
	dir, err := dependencyDir(ctx, "clusterapi", m.module)
	if err != nil {
		return nil, err
	}
	configDir := filepath.Join(dir, filepath.FromSlash(m.config))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.namespace()}}
	if err := l.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}

	webhooks, err := readWebhooks(configDir, m.prefix)
	if err != nil {
		return nil, err
	}
	webhooks.LocalServingHost, webhooks.LocalServingPort = loopback, port
	webhooks.MaxTime = startTimeout
	// Have envtest add the conversion webhooks that the kustomizations patch in.
	webhooks.IgnoreSchemeConvertible = true
	l.onStop(func() error { return webhooks.Cleanup() })
	if err := webhooks.PrepWithoutInstalling(); err != nil {
		return nil, fmt.Errorf("preparing webhooks: %w", err)
	}
	crds, err := readCRDs(configDir)
	if err != nil {
		return nil, err
	}
	_, err = envtest.InstallCRDs(l.Config, envtest.CRDInstallOptions{
		CRDs: crds, Scheme: l.Client.Scheme(), WebhookOptions: *webhooks, MaxTime: startTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("installing CRDs: %w", err)
	}
	if err := webhooks.Install(l.Config); err != nil {
		return nil, fmt.Errorf("installing webhooks: %w", err)
	}
	return webhooks, nil
}
