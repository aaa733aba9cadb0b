package admin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/kubeconfig"
)

// ErrNoKubeconfig is that no Secret says how a workload cluster is reached.
var ErrNoKubeconfig = errors.New("there is no kubeconfig")

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
		cfg, err := kubeconfig.Parse(secret.Data[kubeconfig.SecretKey])
		if err != nil {
			return nil, fmt.Errorf("the kubeconfig in Secret %s: %w", key, err)
		}
		return cfg, nil
	}
	return nil, fmt.Errorf("%[1]w: no Secret %[2]s-refit-kubeconfig or %[2]s-kubeconfig is in namespace %[3]s", ErrNoKubeconfig, cluster.Name, cluster.Namespace)
}
