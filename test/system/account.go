package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/apiserver"
)

// accountName is refit's ServiceAccount, as config/rbac names it.
const accountName = "refit"

// installAccount installs what config/rbac and the component watch-secrets grant to refit, and returns a kubeconfig that has those rights and
// no others. So every scenario also shows that they are enough.
func (s *System) installAccount(ctx context.Context) (string, error) {
	for _, dir := range []string{"rbac", "components/watch-secrets"} {
		if _, err := apiserver.Apply(ctx, s.Client, filepath.Join(s.options.Source, "config", dir)); err != nil {
			return "", err
		}
	}
	kubeconfig, err := apiserver.AccountKubeconfig(ctx, s.Lab.Config, client.ObjectKey{Namespace: leaderNamespace, Name: accountName})
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.certDir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return "", fmt.Errorf("write refit's kubeconfig: %w", err)
	}
	return path, nil
}
