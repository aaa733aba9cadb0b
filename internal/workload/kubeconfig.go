package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/kubeconfig"
)

const (
	// SecretSuffix makes the name of the Secret with refit's own kubeconfig out of a Cluster's name.
	SecretSuffix = "-refit-kubeconfig" //nolint:gosec // the name of a Secret
	// SecretKey is the kubeconfig's key there, the same as in Cluster API's own Secret.
	SecretKey = kubeconfig.SecretKey
)

// findSecret returns the Secret that refit has for a Cluster, or nil.
func findSecret(ctx context.Context, secrets client.Reader, cluster client.ObjectKey) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if found, err := readSecret(ctx, secrets, cluster, secret); !found {
		return nil, err
	}
	return secret, nil
}

// readSecret reads the Secret that refit has for a Cluster, or its metadata, into obj, and reports whether there is one.
func readSecret(ctx context.Context, secrets client.Reader, cluster client.ObjectKey, obj client.Object) (bool, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + SecretSuffix}
	switch err := secrets.Get(ctx, key, obj); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Secret %s: %w", key, err)
	}
	// To a Cluster that is named "<cluster>-refit" Cluster API gives a Secret of the same name.
	other, labelled := obj.GetLabels()[clusterv1.ClusterNameLabel]
	return !labelled || other == cluster.Name, nil
}

// adminSuffix makes the name of Cluster API's own Secret out of a Cluster's name.
const adminSuffix = "-kubeconfig"

// adminSecrets reads for the ClusterCache the Secrets with the administrators' kubeconfigs. The ClusterCache reads files that a
// kubeconfig names with refit's own rights, its token among them, and shows them to whatever server is named there; so it is given
// what a kubeconfig has in itself, and nothing else.
type adminSecrets struct {
	secrets client.Reader
	// refused has, by Cluster, why its kubeconfig was refused when it was last read.
	refused *lru.Cache
}

var _ client.Reader = (*adminSecrets)(nil)

// Get implements client.Reader.
func (a *adminSecrets) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	secret, ok := obj.(*corev1.Secret)
	name, named := strings.CutSuffix(key.Name, adminSuffix)
	if !ok || !named {
		return fmt.Errorf("refit reads kubeconfigs for the cluster cache, and nothing else: not %s", key)
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: name}
	if err := a.secrets.Get(ctx, key, secret, opts...); err != nil {
		a.refused.Remove(cluster)
		return err
	}
	contained, err := kubeconfig.Contained(secret.Data[SecretKey])
	if err != nil {
		err = unusable(key, err)
		a.refused.Add(cluster, err)
		*secret = corev1.Secret{}
		return err
	}
	a.refused.Remove(cluster)
	secret.Data = map[string][]byte{SecretKey: contained}
	return nil
}

// List implements client.Reader. The ClusterCache lists no Secrets.
func (*adminSecrets) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("refit lists no Secrets")
}

// why returns why the kubeconfig of a Cluster was refused when it was last read, or nil.
func (a *adminSecrets) why(cluster client.ObjectKey) error {
	if a == nil {
		return nil
	}
	if err, ok := a.refused.Get(cluster); ok {
		return err.(error)
	}
	return nil
}

// unusable says which Secret it is whose kubeconfig is refused.
func unusable(secret client.ObjectKey, err error) error {
	return fmt.Errorf("the kubeconfig in Secret %s, key %s: %w", secret, SecretKey, err)
}
