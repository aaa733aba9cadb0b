package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capi-refit/refit/test/apiserver"
)

// errStopping is returned when something is to be started in a lab that is being stopped.
var errStopping = errors.New("the lab is being stopped")

// WorkloadKubeconfig returns an administrator's kubeconfig of the cluster's own API server: the one beside the in-memory
// provider's if there is one, else that with which Cluster API itself reaches it.
func (c *Cluster) WorkloadKubeconfig(ctx context.Context) ([]byte, error) {
	if c.server != nil {
		return c.server.Kubeconfig, nil
	}
	return c.providedKubeconfig(ctx)
}

// providedKubeconfig returns the kubeconfig with which Cluster API itself reaches the cluster's API server.
func (c *Cluster) providedKubeconfig(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}
	if err := c.lab.Client.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", c, err)
	}
	return secret.Data["value"], nil
}

// WorkloadClient returns an administrator's client for the cluster's own API server, as WorkloadKubeconfig says which.
func (c *Cluster) WorkloadClient(ctx context.Context) (client.Client, error) {
	kubeconfig, err := c.WorkloadKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	workload, _, err := c.connect(kubeconfig)
	return workload, err
}

func (c *Cluster) connect(kubeconfig []byte) (client.Client, *rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the kubeconfig of %s: %w", c, err)
	}
	connected, err := client.New(config, client.Options{Scheme: c.lab.Client.Scheme()})
	if err != nil {
		return nil, nil, fmt.Errorf("reaching the API server of %s: %w", c, err)
	}
	return connected, config, nil
}

// startWorkloadAPI starts a real API server for the cluster beside the in-memory provider's, which knows neither Leases nor
// evictions. It shares the etcd of the management cluster.
func (c *Cluster) startWorkloadAPI(ctx context.Context) error {
	c.lab.progress("starting the API server of %s", c)
	return c.lab.unlessStopping(func() error {
		server, err := apiserver.Start(ctx, apiserver.Options{
			KubeAPIServer: c.lab.Binaries[KubeAPIServer], Beside: c.lab.server, Name: c.Namespace + "-" + c.Name,
			Dir: c.lab.dir, LogDir: c.lab.LogDir, Launcher: c.lab.launcher,
		})
		if err != nil {
			return fmt.Errorf("starting the API server of %s: %w", c, err)
		}
		c.server = server
		c.lab.onStop(server.Stop)
		return nil
	})
}

// startMirror has the nodes of the in-memory provider's API server appear in the real one, and waits until they are there.
func (c *Cluster) startMirror(ctx context.Context) error {
	kubeconfig, err := c.providedKubeconfig(ctx)
	if err != nil {
		return err
	}
	from, _, err := c.connect(kubeconfig)
	if err != nil {
		return err
	}
	to, err := c.WorkloadClient(ctx)
	if err != nil {
		return err
	}
	m := newMirror(from, to)
	if err := m.sync(ctx); err != nil {
		return fmt.Errorf("mirroring the nodes of %s: %w", c, err)
	}
	return c.lab.unlessStopping(func() error {
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.run(running, func(err error) { c.lab.progress("the nodes of %s are not mirrored: %v", c, err) })
		}()
		c.lab.onStop(func() error { cancel(); <-done; return nil })
		return nil
	})
}

// unlessStopping calls begin, which starts something that ends with the lab. A lab that is being stopped would leave it behind.
func (l *Lab) unlessStopping(begin func() error) error {
	l.starting.Lock()
	defer l.starting.Unlock()
	select {
	case <-l.stopping:
		return errStopping
	default:
		return begin()
	}
}

// GrantAccess gives refit the rights in the cluster that config/workload says, and puts a kubeconfig with those and no others
// into the Secret <cluster>-refit-kubeconfig. Without such manifests it is an administrator's. It can be repeated.
func (c *Cluster) GrantAccess(ctx context.Context) error {
	kubeconfig, err := c.WorkloadKubeconfig(ctx)
	if err != nil {
		return err
	}
	workload, config, err := c.connect(kubeconfig)
	if err != nil {
		return err
	}
	root, err := moduleDir(ctx, rootModule)
	if err != nil {
		return err
	}
	objects, err := apiserver.Apply(ctx, workload, filepath.Join(root, "config", "workload"))
	if err != nil {
		return fmt.Errorf("granting access to %s: %w", c, err)
	}
	if account := serviceAccount(objects); account != nil {
		if kubeconfig, err = apiserver.AccountKubeconfig(ctx, config, client.ObjectKeyFromObject(account)); err != nil {
			return fmt.Errorf("granting access to %s: %w", c, err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-refit-kubeconfig"}}
	_, err = controllerutil.CreateOrUpdate(ctx, c.lab.Client, secret, func() error {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, clusterv1.ClusterNameLabel, c.Name)
		secret.Type, secret.Data = clusterv1.ClusterSecretType, map[string][]byte{"value": kubeconfig}
		return nil
	})
	if err != nil {
		return fmt.Errorf("granting access to %s: writing Secret %s: %w", c, secret.Name, err)
	}
	return nil
}

// serviceAccount returns the first ServiceAccount of objects, or nil.
func serviceAccount(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" {
			return object
		}
	}
	return nil
}
