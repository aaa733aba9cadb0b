package workload

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An API server that a kubeconfig names could have refit fetch what only refit's pod reaches, and read it in the error.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("it was asked")
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(elsewhere.Close)
	server := &apiServer{Server: httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/latest/meta-data", http.StatusFound))}
	t.Cleanup(server.Close)
	clusters, cache, _ := setUp(server, secretFor(prod, server.kubeconfig(t, "one", nil)))
	own, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.ErrorContains(t, own.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{}), "redirects to another address")
	_, err = own.Clientset.Discovery().ServerVersion()
	require.ErrorContains(t, err, "redirects to another address")

	connected, err := fromConnection(cache.config)
	require.NoError(t, err)
	_, err = connected.clientset.Discovery().ServerVersion()
	require.ErrorContains(t, err, "redirects to another address")
}
