//go:build e2e

package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/apiserver"
)

// page is what refit serve --ui serves.
type page struct {
	url    string
	bundle []byte
}

// isShown has a real API server say who may see the page, by the roles of config/components/ui.
func (p page) isShown(t *testing.T, admin *rest.Config) {
	live, err := client.New(admin, client.Options{}) // of all kinds that client-go knows
	require.NoError(t, err)
	applied, err := apiserver.Apply(t.Context(), live, filepath.Join("..", "..", "config", "components", "ui"))
	require.NoError(t, err)
	require.NotEmpty(t, applied)
	tokens := map[string]string{}
	for _, name := range []string{"viewer", "stranger"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}}
		require.NoError(t, live.Create(t.Context(), account))
		token := &authenticationv1.TokenRequest{}
		require.NoError(t, live.SubResource("token").Create(t.Context(), account, token))
		tokens[name] = token.Status.Token
	}
	require.NoError(t, live.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "refit-system-refit-ui-viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "fleet", Name: "viewer"}},
	}))

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(p.bundle))
	browser := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	defer browser.CloseIdleConnections()
	ask := func(method, path, token string, form url.Values) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response, err := browser.Do(r)
		require.NoError(t, err)
		defer response.Body.Close() //nolint:errcheck // it was read
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	get := func(token string) (int, string) { return ask(http.MethodGet, "/ui/api/machines", token, nil) }
	logIn := func(token string) (int, string) {
		return ask(http.MethodPost, "/ui/login", "", url.Values{"token": {token}})
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "made-up": http.StatusUnauthorized, tokens["stranger"]: http.StatusForbidden} {
		status, body := get(token)
		require.Equal(t, want, status, body)
		if token != "" {
			status, body = logIn(token)
			require.Equal(t, want, status, body)
		}
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) { // informers, and the binding
		status, body := get(tokens["viewer"])
		require.Equal(ct, http.StatusOK, status)
		require.Contains(ct, body, `"w-1"`)
	}, wait, tick)
	status, _ := get("")
	require.Equal(t, http.StatusUnauthorized, status, "nobody has logged in")
	status, body := logIn(tokens["viewer"])
	require.Equal(t, http.StatusOK, status, body)
	_, body = get("")
	require.Contains(t, body, `"m-1"`)
	status, _ = ask(http.MethodDelete, "/ui/api/machines", "", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
}
