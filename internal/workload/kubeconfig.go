package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// SecretSuffix makes the name of the Secret with refit's own kubeconfig out of a Cluster's name.
	SecretSuffix = "-refit-kubeconfig" //nolint:gosec // the name of a Secret
	// SecretKey is the kubeconfig's key there, the same as in Cluster API's own Secret.
	SecretKey = "value"
)

// findSecret returns the Secret that refit has for a Cluster, or nil.
func findSecret(ctx context.Context, secrets client.Reader, cluster client.ObjectKey) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + SecretSuffix}
	secret := &corev1.Secret{}
	switch err := secrets.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	// To a Cluster that is named "<cluster>-refit" Cluster API gives a Secret of the same name.
	if other, ok := secret.Labels[clusterv1.ClusterNameLabel]; ok && other != cluster.Name {
		return nil, nil
	}
	return secret, nil
}

// parse reads a kubeconfig out of a Secret. Whoever writes the Secret must gain nothing in refit's container, so that it can't
// name programs or files, and must not lead refit's credentials to a server that nobody has verified. Errors quote none of it.
func parse(data []byte) (*rest.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("there is no kubeconfig")
	}
	kubeconfig, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it can't be read as a kubeconfig")
	}
	if err := selfContained(kubeconfig); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("its current context does not lead to a server and a user that can be used")
	}
	if !strings.HasPrefix(cfg.Host, "https://") {
		return nil, errors.New("its server is not reached by https")
	}
	return cfg, nil
}

func selfContained(kubeconfig *clientcmdapi.Config) error {
	for _, user := range kubeconfig.AuthInfos {
		switch {
		case user.Exec != nil:
			return errors.New("it runs a program (exec) for its credentials, which refit does not; put a token or a client certificate into it")
		case user.AuthProvider != nil:
			return errors.New("it has an auth-provider, which refit does not know; put a token or a client certificate into it")
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("it refers to files of credentials, which refit does not read; make it with: kubectl config view --flatten --minify")
		}
	}
	for _, server := range kubeconfig.Clusters {
		switch {
		case server.CertificateAuthority != "":
			return errors.New("it refers to a file of authorities, which refit does not read; make it with: kubectl config view --flatten --minify")
		case server.InsecureSkipTLSVerify:
			return errors.New("it has insecure-skip-tls-verify, and refit shows its credentials to verified servers only; put certificate-authority-data into it")
		}
	}
	return nil
}
