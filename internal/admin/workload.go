package admin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubeconfigKey is where Cluster API keeps a kubeconfig in its Secret.
const kubeconfigKey = "value"

// WorkloadConfig returns how the API server of a workload cluster is reached: as the Secret <cluster>-refit-kubeconfig says, and
// if there is none, as Cluster API's <cluster>-kubeconfig does.
func WorkloadConfig(ctx context.Context, c client.Reader, cluster types.NamespacedName) (*rest.Config, error) {
	for _, suffix := range []string{"-refit-kubeconfig", "-kubeconfig"} {
		var secret corev1.Secret
		key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name + suffix}
		switch err := c.Get(ctx, key, &secret); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("read Secret %s: %w", key, err)
		}
		cfg, err := parseKubeconfig(secret.Data[kubeconfigKey])
		if err != nil {
			return nil, fmt.Errorf("the kubeconfig in Secret %s: %w", key, err)
		}
		return cfg, nil
	}
	return nil, fmt.Errorf("there is no Secret %[1]s-refit-kubeconfig or %[1]s-kubeconfig in namespace %[2]s; say how cluster %[1]s is reached with --workload-kubeconfig",
		cluster.Name, cluster.Namespace)
}

// parseKubeconfig reads a kubeconfig that came from a Secret: who can write that must not have programs run here, or files read.
// No error repeats what is in it.
func parseKubeconfig(data []byte) (*rest.Config, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("there is nothing under the key %q", kubeconfigKey)
	}
	cfg, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it can't be read")
	}
	if !selfContained(cfg) {
		return nil, errors.New("it names a program or a file, and may only have what is needed in itself")
	}
	out, err := clientcmd.NewNonInteractiveClientConfig(*cfg, cfg.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, errors.New("it does not say how an API server is reached")
	}
	return out, nil
}

// selfContained says whether a kubeconfig needs neither a program nor a file.
func selfContained(cfg *clientcmdapi.Config) bool {
	for _, user := range cfg.AuthInfos {
		if user.Exec != nil || user.AuthProvider != nil || user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "" {
			return false
		}
	}
	for _, cluster := range cfg.Clusters {
		if cluster.CertificateAuthority != "" {
			return false
		}
	}
	return true
}
