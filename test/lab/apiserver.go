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

	"github.com/capi-refit/refit/test/apiserver"
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
	l.server, err = apiserver.Start(ctx, apiserver.Options{
		Etcd: l.Binaries[Etcd], KubeAPIServer: l.Binaries[KubeAPIServer], Dir: l.dir, LogDir: l.LogDir, Launcher: l.launcher,
		Env: l.options.Env,
	})
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	l.onStop(l.server.Stop)
	l.Config = l.server.Config
	if err := os.WriteFile(l.Kubeconfig, l.server.Kubeconfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	l.Client, err = client.New(l.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return ctx.Err()
}

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
