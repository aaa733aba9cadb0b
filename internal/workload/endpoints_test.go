package workload

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

func endpointSlice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	port := int32(6443)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Ports:      []discoveryv1.EndpointPort{{Port: &port}, {}}, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

func TestEndpoints(t *testing.T) {
	other := endpointSlice("other", "192.0.2.9")
	other.Labels = nil
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		endpointSlice("one", "192.0.2.2", "192.0.2.1"), endpointSlice("two", "192.0.2.2", "2001:db8::1", "127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"), other,
	).Build()
	var mu sync.Mutex
	var asked []string
	c := &Cluster{Client: reader, Ask: func(ctx context.Context, address string) (string, error) {
		_, limited := ctx.Deadline()
		require.True(t, limited)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, address)
		if strings.HasPrefix(address, "192.0.2.2:") {
			return "", errors.New("no route to host")
		}
		return "v1.36.0", nil
	}}
	all, known, err := c.Endpoints(t.Context())
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, []Endpoint{
		{"127.0.0.1:6443", ""}, {"169.254.169.254:6443", ""}, {"192.0.2.1:6443", "v1.36.0"}, {"192.0.2.2:6443", ""}, {"[2001:db8::1]:6443", "v1.36.0"},
		{"[::ffff:127.0.0.1]:6443", ""},
	}, all)
	slices.Sort(asked)
	require.Equal(t, []string{"192.0.2.1:6443", "192.0.2.2:6443", "[2001:db8::1]:6443"}, asked, "nothing of refit's own host")

	c.Client = interceptor.NewClient(reader, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}})
	_, known, err = c.Endpoints(t.Context())
	require.NoError(t, err)
	require.False(t, known)
}

func TestAnEndpointHasToBeOfTheCluster(t *testing.T) {
	ca := staticpodtest.NewAuthority(t)
	serve := func(ca *staticpodtest.Authority, name string, handler http.HandlerFunc) string {
		cert, key := ca.Issue("kube-apiserver", name)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		return strings.TrimPrefix(ca.Serve(handler, func() (tls.Certificate, error) { return pair, nil }).URL, "https://")
	}
	tells := func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Authorization"), "no credentials are sent to where a cluster says")
		_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": "v1.36.0"})
	}
	ask := asking(&rest.Config{Host: "https://lb.example.org", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM}})
	for name, tc := range map[string]struct {
		address string
		want    string
	}{
		"one of the cluster's":     {serve(ca, endpointName, tells), "v1.36.0"},
		"another name":             {serve(ca, "other.example.org", tells), ""},
		"another authority's":      {serve(staticpodtest.NewAuthority(t), endpointName, tells), ""},
		"one that does not tell":   {serve(ca, endpointName, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }), ""},
		"one that asks who it is":  {serve(ca, endpointName, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusUnauthorized) }), ""},
		"one that leads elsewhere": {serve(ca, endpointName, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t.Context(), tc.address)
			require.Equal(t, tc.want == "", err != nil)
			require.Equal(t, tc.want, got)
		})
	}
	require.Nil(t, asking(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
}
