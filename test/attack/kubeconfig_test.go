package attack

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/workload"
)

const (
	// refitsToken stands for what is in the file with the token of refit's ServiceAccount.
	refitsToken = "the-token-of-refits-own-service-account"
	// tenantsToken is one that a tenant may give away.
	tenantsToken    = "a-token-of-the-tenant"
	tenantNamespace = "tenant"
	honestCluster   = "right" // a Cluster whose kubeconfig is as it should be
)

// fakeKubeAPI is a fake of a Kubernetes API server over TLS, with the little that a ClusterCache asks for. It notes each request.
type fakeKubeAPI struct {
	*httptest.Server
	mux *http.ServeMux

	mu       sync.Mutex
	requests []*http.Request
}

func newFakeKubeAPI(t *testing.T) *fakeKubeAPI {
	t.Helper()
	s := &fakeKubeAPI{mux: http.NewServeMux()}
	s.answer("GET /{$}", map[string]string{})
	s.answer("GET /api", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	s.answer("GET /apis", metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	s.answer("GET /api/v1", metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: metav1.Verbs{"get"}}},
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeKubeJSON(w, http.StatusNotFound, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, corev1.Resource(r.URL.Path), "", "", 0, false).Status())
	})
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Clone(r.Context()))
		s.mu.Unlock()
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeKubeAPI) answer(pattern string, answer any) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { writeKubeJSON(w, http.StatusOK, answer) })
}

func writeKubeJSON(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// shown are the credentials that the server was shown, each once.
func (s *fakeKubeAPI) shown() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for _, r := range s.requests {
		out[r.Header.Get("Authorization")] = true
	}
	return out
}

func (s *fakeKubeAPI) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// kubeconfig is one for the server, as change makes it.
func (s *fakeKubeAPI) kubeconfig(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.authority()}
	user := &clientcmdapi.AuthInfo{Token: tenantsToken}
	change(cluster, user)
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	require.NoError(t, err)
	return data
}

// serveManagement has the server be that of a management cluster with a Cluster, and its Secret, for each kubeconfig.
func (s *fakeKubeAPI) serveManagement(kubeconfigs map[string][]byte) {
	clusters := clusterv1.ClusterList{
		TypeMeta: metav1.TypeMeta{Kind: "ClusterList", APIVersion: clusterv1.GroupVersion.String()}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
	}
	for name, data := range kubeconfigs {
		c := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		c.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		clusters.Items = append(clusters.Items, c)
		secret := corev1.Secret{
			TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: name + "-kubeconfig", ResourceVersion: "1"},
			Data:       map[string][]byte{"value": data},
		}
		s.answer("GET /api/v1/namespaces/"+tenantNamespace+"/secrets/"+secret.Name, secret)
	}
	s.mux.HandleFunc("GET /apis/cluster.x-k8s.io/v1beta2/clusters", func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("watch") == "":
			writeKubeJSON(w, http.StatusOK, clusters)
		case q.Get("sendInitialEvents") != "": // clients then list
			writeKubeJSON(w, http.StatusUnprocessableEntity, apierrors.NewInvalid(listOptionsKind, "", nil).Status())
		default:
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // the server's own
			<-r.Context().Done()
		}
	})
}

var listOptionsKind = clusterv1.GroupVersion.WithKind("ListOptions").GroupKind()

// connectClusterCache runs a manager with Cluster API's own ClusterCache, as refit sets it up, against a management cluster.
func connectClusterCache(t *testing.T, management *fakeKubeAPI) *workload.Clusters {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, clusterv1.AddToScheme(scheme))
	cfg := &rest.Config{Host: management.URL, BearerToken: refitsToken, TLSClientConfig: rest.TLSClientConfig{CAData: management.authority()}}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper(nil)
			m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
			m.Add(clusterv1.GroupVersion.WithKind("Cluster"), meta.RESTScopeNamespace)
			return m, nil
		},
	})
	require.NoError(t, err)
	clusters, err := workload.Setup(t.Context(), shard.Manager{Manager: mgr}, "refit/test", false, clock.RealClock{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }() // the test's context ends before what is cleaned up
	t.Cleanup(func() { require.NoError(t, <-ended) })
	return clusters
}

// TestATenantsKubeconfig has tenants write <cluster>-kubeconfig, which Cluster API's own ClusterCache reads for refit.
func TestATenantsKubeconfig(t *testing.T) {
	file := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	token := file([]byte(refitsToken)) // stands for /var/run/secrets/kubernetes.io/serviceaccount/token
	evil, honest, management := newFakeKubeAPI(t), newFakeKubeAPI(t), newFakeKubeAPI(t)
	authority := file(evil.authority())
	attacks := map[string]struct {
		title  string
		change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		says   string
	}{
		"file": {"that names refit's token is refused", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.TokenFile = "", token
		}, "files of credentials"},
		"both": {"that names refit's token beside a token is refused", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.TokenFile = token
		}, "files of credentials"},
		"key": {"that names a client key is refused", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate, u.ClientKey = token, token
		}, "files of credentials"},
		"authority": {"that names a file of authorities is refused", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.CertificateAuthority = nil, authority
		}, "file of authorities"},
		"unverified": {"whose server is not verified is refused", func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true
		}, "insecure-skip-tls-verify"},
		"program": {"that runs a program is refused", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}, "runs a program"},
		"provider": {"with an auth-provider is refused", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, "auth-provider"},
		"plain": {"whose server is not reached by https is refused", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "http://" + evil.Listener.Addr().String()
		}, "not reached by https"},
	}
	kubeconfigs := map[string][]byte{honestCluster: honest.kubeconfig(t, func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {})}
	for name, attack := range attacks {
		kubeconfigs[name] = evil.kubeconfig(t, attack.change)
	}
	management.serveManagement(kubeconfigs)
	clusters := connectClusterCache(t, management)

	get := func(name string) error {
		_, err := clusters.Get(t.Context(), client.ObjectKey{Namespace: tenantNamespace, Name: name})
		return err
	}
	t.Run("that is as it should be is used", func(t *testing.T) {
		require.Eventually(t, func() bool { return get(honestCluster) == nil }, time.Minute, 10*time.Millisecond, "%v", get(honestCluster))
		require.Equal(t, map[string]bool{"Bearer " + tenantsToken: true}, honest.shown())
	})
	for name, attack := range attacks {
		t.Run(attack.title, func(t *testing.T) {
			// The ClusterCache has read it when refit can say why it is refused, or has connected with it.
			tried := func() bool { err := get(name); return err == nil || !workload.IsUnavailable(err) }
			require.Eventually(t, tried, time.Minute, 10*time.Millisecond, "%v", get(name))
			err := get(name)
			require.ErrorContains(t, err, attack.says)
			require.ErrorContains(t, err, "Secret tenant/"+name+"-kubeconfig, key value: ")
			for _, private := range []string{refitsToken, tenantsToken, token, evil.Listener.Addr().String()} {
				require.NotContains(t, err.Error(), private)
			}
		})
	}
	require.Empty(t, evil.shown(), "no server of a tenant was asked anything")
}
