// Package apitest starts a real API server for one test.
package apitest

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
)

// Start starts an API server of the lab's programs, which ends with the test, and installs CRDs.
func Start(t *testing.T, crds envtest.CRDInstallOptions) *apiserver.Server {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // envtest's
	programs, err := lab.Build(t.Context(), t.Output(), lab.Etcd, lab.KubeAPIServer)
	require.NoError(t, err)
	server, err := apiserver.Start(t.Context(), apiserver.Options{Etcd: programs[lab.Etcd], KubeAPIServer: programs[lab.KubeAPIServer]})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	_, err = envtest.InstallCRDs(server.Config, crds)
	require.NoError(t, err)
	return server
}

// Refit returns a client with the rights that refit is installed with.
func Refit(t *testing.T, server *apiserver.Server, scheme *runtime.Scheme) client.WithWatch {
	t.Helper()
	kubeconfig, err := apiserver.AccountKubeconfig(t.Context(), server.Config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
	require.NoError(t, err)
	rest, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	refit, err := client.NewWithWatch(rest, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return refit
}
