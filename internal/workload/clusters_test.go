package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/shard"
)

var (
	prod    = client.ObjectKey{Namespace: "fleet", Name: "prod"}
	errAway = errors.New("the management cluster is away")
)

// connections are those of a ClusterCache.
type connections struct {
	config    *rest.Config
	client    client.Client
	configErr error
	clientErr error
}

func (c *connections) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.client, c.clientErr
}

func (c *connections) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, c.configErr
}

func secretFor(cluster client.ObjectKey, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name + "-refit-kubeconfig", UID: types.UID("secret of " + cluster.Name)},
		Data:       map[string][]byte{"value": kubeconfig},
	}
}

// setUp returns Clusters with a ClusterCache that is connected to the server, and the management cluster.
func setUp(server *apiServer, secrets ...client.Object) (*Clusters, *connections, client.WithWatch) {
	management := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secrets...).Build()
	cache := &connections{config: server.config(), client: fake.NewClientBuilder().Build()}
	return &Clusters{Cache: cache, Secrets: management, UserAgent: "refit/test"}, cache, management
}

// token returns the credentials that a Cluster's clients show, which must be the same for both.
func token(t *testing.T, server *apiServer, c *Cluster, nodes bool) string {
	t.Helper()
	_, err := c.Clientset.Discovery().ServerVersion()
	require.NoError(t, err)
	shown := server.last(t).Header.Get("Authorization")
	if nodes {
		n := &corev1.Node{}
		require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, n))
		require.Equal(t, "n1", n.Name)
		require.Equal(t, shown, server.last(t).Header.Get("Authorization"))
	}
	return shown
}

func TestSecretWinsOverCache(t *testing.T) {
	server := newAPIServer(t)
	clusters, cache, management := setUp(server, secretFor(prod, server.kubeconfig(t, "one", nil)))

	first, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Empty(t, server.requests, "nothing is asked until it is needed")
	require.Equal(t, "Bearer one", token(t, server, first, true))
	require.Equal(t, "refit/test", server.last(t).Header.Get("User-Agent"))

	again, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Same(t, first.Client, again.Client)
	require.Same(t, first.Clientset, again.Clientset)

	secret := &corev1.Secret{}
	require.NoError(t, management.Get(t.Context(), client.ObjectKeyFromObject(secretFor(prod, nil)), secret))
	secret.Data["value"] = server.kubeconfig(t, "two", nil)
	require.NoError(t, management.Update(t.Context(), secret))
	rotated, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Equal(t, "Bearer two", token(t, server, rotated, true))

	secret.Data["value"] = []byte("x")
	require.NoError(t, management.Update(t.Context(), secret))
	_, err = clusters.Get(t.Context(), prod)
	require.Error(t, err, "what worked before is not used any more")

	require.NoError(t, management.Delete(t.Context(), secret))
	connected, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Same(t, cache.client, inner(connected))
	require.Equal(t, "Bearer admin", token(t, server, connected, false))
}

// TestManyWhoComeAtOnceHaveOneClient: a client of each would have a connection of its own, and ask the API server what it serves.
func TestManyWhoComeAtOnceHaveOneClient(t *testing.T) {
	const many = 20
	server := newAPIServer(t)
	clusters, _, management := setUp(server, secretFor(prod, server.kubeconfig(t, "one", nil)))
	var there sync.WaitGroup
	there.Add(many)
	clusters.Secrets = interceptor.NewClient(management, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			there.Done()
			there.Wait()
			return c.Get(ctx, key, obj, opts...)
		},
	})
	got := make(chan *Cluster, many)
	for range many {
		go func() {
			c, err := clusters.Get(t.Context(), prod)
			assert.NoError(t, err)
			got <- c
		}()
	}
	first := <-got
	for range many - 1 {
		require.Same(t, first.Client, (<-got).Client)
	}
}

// TestUpdatesThatBeginTogetherAreNotSpaced: as many as there are sessions of a cluster by default may ask what it takes until they have begun.
func TestUpdatesThatBeginTogetherAreNotSpaced(t *testing.T) {
	const sessions, requests = 100, 8 // TestRequestsUntilAnUpdateStarts of machineupdate has the latter
	server := newAPIServer(t)
	clusters, _, _ := setUp(server, secretFor(prod, server.kubeconfig(t, "one", nil)))
	c, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	limiter := c.Clientset.CoordinationV1().RESTClient().GetRateLimiter()
	for range sessions * requests {
		require.True(t, limiter.TryAccept())
	}
}

func TestConnection(t *testing.T) {
	server := newAPIServer(t)
	clusters, cache, _ := setUp(server)
	first, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Same(t, cache.client, inner(first))

	again, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Same(t, first.Clientset, again.Clientset)

	cache.config = server.config()
	reconnected, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.NotSame(t, first.Clientset, reconnected.Clientset)

	disconnected := fmt.Errorf("error getting client: %w", clustercache.ErrClusterNotConnected)
	for _, lost := range []*error{&cache.configErr, &cache.clientErr} {
		*lost = disconnected
		_, err := clusters.Get(t.Context(), prod)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "Cluster fleet/prod")
		require.Zero(t, clusters.kept.Len(), "nothing is kept of what is not connected")
		*lost = nil
	}
	cache.configErr = errAway
	_, err = clusters.Get(t.Context(), prod)
	require.ErrorIs(t, err, errAway)
	require.NotErrorIs(t, err, ErrUnavailable)

	cache.configErr, cache.config = nil, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}
	_, err = clusters.Get(t.Context(), prod)
	require.ErrorContains(t, err, "make a clientset")
}

func TestUnreadableSecretIsNoReasonToUseTheAdministrators(t *testing.T) {
	server := newAPIServer(t)
	clusters, _, management := setUp(server)
	clusters.Secrets = interceptor.NewClient(management, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errAway
		},
	})
	_, err := clusters.Get(t.Context(), prod)
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, "read Secret fleet/prod-refit-kubeconfig")
}

// To a Cluster "prod-refit" Cluster API gives the Secret "prod-refit-kubeconfig", which is not for Cluster "prod".
func TestNamesake(t *testing.T) {
	server := newAPIServer(t)
	secret := secretFor(prod, server.kubeconfig(t, "admin of prod-refit", nil))
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "prod-refit"}
	clusters, cache, management := setUp(server, secret)
	c, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Same(t, cache.client, inner(c))

	secret.Labels[clusterv1.ClusterNameLabel] = "prod"
	require.NoError(t, management.Update(t.Context(), secret))
	c, err = clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.NotSame(t, cache.client, inner(c))
}

func TestKubeconfigsThatAreRefused(t *testing.T) {
	const private = "hunter2"
	server := newAPIServer(t)
	with := func(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
		return server.kubeconfig(t, private, change)
	}
	tests := map[string]struct {
		kubeconfig []byte
		want       string
	}{
		"none":              {nil, "there is no kubeconfig"},
		"not a kubeconfig":  {[]byte("users: " + private), "can't be read as a kubeconfig"},
		"without a context": {[]byte("apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: " + private + "}}]"), "current context"},
		"a program": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}), "runs a program"},
		"an auth provider": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}), "auth-provider"},
		"a token's file": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
		}), "files of credentials"},
		"a certificate's file": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/certs/tls.crt" }), "files of credentials"},
		"a key's file":         {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "/certs/tls.key" }), "files of credentials"},
		"an authority's file":  {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "/ca.crt" }), "file of authorities"},
		"no verification": {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true
		}), "insecure-skip-tls-verify"},
		"no encryption":   {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://" + private + ":80" }), "not reached by https"},
		"no server":       {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "" }), "current context"},
		"a bad authority": {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = []byte(private) }), "certificates or keys can't be used"},
		"a bad client key": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKeyData, u.ClientCertificateData = []byte(private), []byte(private)
		}), "certificates or keys can't be used"},
		"a bad proxy with a key": {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "nowhere://" + private + "@proxy"
		}), "current context"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clusters, _, _ := setUp(server, secretFor(prod, tt.kubeconfig))
			_, err := clusters.Get(t.Context(), prod)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "Secret fleet/prod-refit-kubeconfig, key value: ")
			require.NotContains(t, err.Error(), private)
			require.False(t, IsUnavailable(err), "waiting does not mend it")
		})
	}
	require.Empty(t, server.requests)
}

func TestUnknownKindsAreNoMatch(t *testing.T) {
	server := newAPIServer(t)
	clusters, _, _ := setUp(server, secretFor(prod, server.kubeconfig(t, "one", nil)))
	c, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenanceList"})
	require.True(t, meta.IsNoMatchError(c.Client.List(t.Context(), list)))
}

func TestIsUnavailable(t *testing.T) {
	server := newAPIServer(t)
	gone := newAPIServer(t)
	gone.Close()
	call := func(kubeconfig []byte) error {
		clusters, _, _ := setUp(server, secretFor(prod, kubeconfig))
		c, err := clusters.Get(t.Context(), prod)
		require.NoError(t, err)
		return c.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	nodes := schema.GroupResource{Resource: "nodes"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"no error":                 {nil, false},
		"no connection":            {fmt.Errorf("get: %w", ErrUnavailable), true},
		"nothing listens":          {call(gone.kubeconfig(t, "one", nil)), true},
		"too late":                 {context.DeadlineExceeded, true},
		"it is starting":           {apierrors.NewServiceUnavailable("etcd"), true},
		"it has too much to do":    {apierrors.NewTooManyRequests("later", 1), true},
		"it took too long":         {apierrors.NewTimeoutError("etcd", 1), true},
		"another server":           {call(server.kubeconfig(t, "one", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.TLSServerName = "prod.example.org" })), false},
		"a right is missing":       {apierrors.NewForbidden(nodes, "n1", errors.New("no")), false},
		"the caller gave up":       {cancelled.Err(), false},
		"the API server's failure": {apierrors.NewInternalError(errors.New("webhook")), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, IsUnavailable(tt.err), "%v", tt.err) })
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	server := newAPIServer(t)
	clusters, _, management := setUp(server)
	require.NoError(t, management.Create(t.Context(), secretFor(prod, server.kubeconfig(t, "one", nil))))
	for i := range keepAtMost + 1 {
		clusters.keep(client.ObjectKey{Name: fmt.Sprint(i)}, &kept{http: &http.Client{}})
	}
	_, err := clusters.Get(t.Context(), prod)
	require.NoError(t, err)
	require.Equal(t, keepAtMost, clusters.kept.Len())
}

func TestWhichClustersTheCacheConnectsTo(t *testing.T) {
	server := newAPIServer(t)
	_, _, management := setUp(server)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC))
	asked, away := 0, false
	filter := &adminOnly{clock: clock, asked: lru.New(10), secrets: interceptor.NewClient(management, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			require.IsType(t, &metav1.PartialObjectMetadata{}, obj, "the content is nobody's business")
			asked++
			if away {
				return errAway
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: prod.Namespace, Name: prod.Name, ResourceVersion: "1"}}
	connects := func() bool { return filter.connects(t.Context(), cluster) }
	after := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	require.True(t, connects())
	require.True(t, connects())
	require.Equal(t, 1, asked, "it is not asked each time")
	after(askAgain)
	require.True(t, connects())
	cluster.ResourceVersion = "2"
	after(askAgain - time.Second)
	require.True(t, connects())
	require.Equal(t, 2, asked)
	after(time.Second)
	require.True(t, connects())
	require.Equal(t, 3, asked, "a Cluster that has changed")

	for range 6 { // in an hour
		for range 60 {
			after(10 * time.Second)
			require.True(t, connects())
		}
	}
	require.Less(t, asked, 3+3+8, "less and less often")
	asked = 0
	require.NoError(t, management.Create(t.Context(), secretFor(prod, nil)))
	after(resync.Every)
	require.False(t, connects())
	require.False(t, connects())
	require.Equal(t, 2, asked)

	away = true
	require.True(t, connects(), "one question without an answer does not disconnect for good")
	away = false
	require.False(t, connects())
	require.NoError(t, management.Delete(t.Context(), secretFor(prod, nil)))
	require.True(t, connects())

	require.NoError(t, management.Create(t.Context(), secretFor(prod, nil)))
	require.True(t, connects(), "it is not known yet")
	clusters := &Clusters{Secrets: management, filter: filter}
	_, err := clusters.Get(t.Context(), prod)
	require.Error(t, err, "it has no kubeconfig")
	require.False(t, connects(), "somebody has found it")
}

// TestAWatchedSecretIsSeenAtOnce: a cache is asked each time, which costs nothing.
func TestAWatchedSecretIsSeenAtOnce(t *testing.T) {
	_, _, management := setUp(newAPIServer(t))
	filter := &adminOnly{clock: clocktesting.NewFakePassiveClock(time.Time{}), asked: lru.New(10), secrets: management, watched: true}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: prod.Namespace, Name: prod.Name}}
	require.True(t, filter.connects(t.Context(), cluster))
	require.NoError(t, management.Create(t.Context(), secretFor(prod, nil)))
	require.False(t, filter.connects(t.Context(), cluster))
}

// TestNobodyConnectsToAClusterThatIsNotThereYet, so that nothing is asked for it.
func TestNobodyConnectsToAClusterThatIsNotThereYet(t *testing.T) {
	require.False(t, provisioned(&clusterv1.Cluster{}))
	there := &clusterv1.Cluster{}
	there.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	require.True(t, provisioned(there))
}

func TestSetup(t *testing.T) {
	server := newAPIServer(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	opts := func() ctrl.Options {
		return ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
				m := meta.NewDefaultRESTMapper(nil)
				m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
				return m, nil
			},
		}
	}
	mgr, err := ctrl.NewManager(server.config(), opts())
	require.NoError(t, err)
	clock := clocktesting.NewFakePassiveClock(time.Time{})
	_, err = Setup(t.Context(), shard.Manager{Manager: mgr}, "refit/test", false, clock)
	require.ErrorContains(t, err, "add the cluster cache", "the manager must know Clusters")

	require.NoError(t, clusterv1.AddToScheme(scheme))
	mgr, err = ctrl.NewManager(server.config(), opts())
	require.NoError(t, err)
	clusters, err := Setup(t.Context(), shard.Manager{Manager: mgr}, "refit/test", false, clock)
	require.NoError(t, err)
	_, err = clusters.Get(t.Context(), prod)
	require.ErrorIs(t, err, ErrUnavailable, "nothing is connected before the manager runs")
	require.Equal(t, "/api/v1/namespaces/fleet/secrets/prod-refit-kubeconfig", server.last(t).URL.Path)
}

// inner returns the client under that which remembers what is not served.
func inner(c *Cluster) client.Client { return c.Client.(*absentClient).Client }
