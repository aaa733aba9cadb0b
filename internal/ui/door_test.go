package ui

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/ui/uitest"
)

const port = "4711"

func newDoor(t *testing.T) *Door {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp4", "127.0.0.1:"+port)
	require.NoError(t, err)
	return NewDoor(at)
}

func TestTheDoor(t *testing.T) {
	d := newDoor(t)
	other := newDoor(t)
	guarded := d.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") }))
	cookie := func(of *Door) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: of.cookie, Value: of.pass}) }
	}
	with := func(edits ...func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			for _, e := range edits {
				e(r)
			}
		}
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for name, tc := range map[string]struct {
		method, path string
		edit         func(*http.Request)
		code         int
	}{
		"without the cookie":              {"GET", "/", nil, 401},
		"without the cookie, a file":      {"GET", "/app.js", nil, 401},
		"without the cookie, the API":     {"GET", "/api/fleet", nil, 401},
		"with the cookie":                 {"GET", "/api/fleet", cookie(d), 200},
		"with the cookie of another run":  {"GET", "/api/fleet", cookie(other), 401},
		"with both cookies":               {"GET", "/api/fleet", with(cookie(other), cookie(d)), 200},
		"the token is no cookie":          {"GET", "/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: d.cookie, Value: d.token}) }, 401},
		"with the token":                  {"GET", "/?token=" + d.token, nil, 200},
		"with another token":              {"GET", "/?token=" + other.token, nil, 403},
		"with no token":                   {"GET", "/?token=", nil, 403},
		"with the cookie as a token":      {"GET", "/?token=" + d.pass, nil, 403},
		"the token opens nothing else":    {"GET", "/api/fleet?token=" + d.token, nil, 401},
		"under the name localhost":        {"GET", "/api/fleet", with(cookie(d), host("LOCALHOST:"+port)), 200},
		"under another name":              {"GET", "/api/fleet", with(cookie(d), host("rebound.example:"+port)), 421},
		"under another port":              {"GET", "/api/fleet", with(cookie(d), host("127.0.0.1:80")), 421},
		"under no port":                   {"GET", "/api/fleet", with(cookie(d), host("127.0.0.1")), 421},
		"under another name, the token":   {"GET", "/?token=" + d.token, host("rebound.example:" + port), 421},
		"to write":                        {"POST", "/api/fleet", cookie(d), 405},
		"to delete":                       {"DELETE", "/api/fleet", cookie(d), 405},
		"to ask what may be written":      {"OPTIONS", "/api/fleet", cookie(d), 405},
		"a head":                          {"HEAD", "/api/fleet", cookie(d), 200},
		"another site asks":               {"GET", "/api/fleet", with(cookie(d), header("Sec-Fetch-Site", "cross-site")), 403},
		"another port of the host asks":   {"GET", "/api/fleet", with(cookie(d), header("Sec-Fetch-Site", "same-site")), 403},
		"another site leads to the API":   {"GET", "/api/fleet", with(cookie(d), header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate")), 403},
		"another site leads to the token": {"GET", "/?token=" + d.token, with(header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate")), 200},
		"the page asks":                   {"GET", "/api/fleet", with(cookie(d), header("Sec-Fetch-Site", "same-origin")), 200},
		"typed into the address bar":      {"GET", "/", with(cookie(d), header("Sec-Fetch-Site", "none")), 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, "http://127.0.0.1:"+port+tc.path, http.NoBody)
			if tc.edit != nil {
				tc.edit(r)
			}
			w := httptest.NewRecorder()
			guarded.ServeHTTP(w, r)
			require.Equal(t, tc.code, w.Code, w.Body.String())
			require.Equal(t, "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'", w.Header().Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
			if tc.code != http.StatusOK {
				require.NotContains(t, w.Body.String(), "secret")
				require.NotContains(t, w.Body.String(), d.token)
			}
		})
	}
}

func TestTheCookie(t *testing.T) {
	d := newDoor(t)
	w := httptest.NewRecorder()
	d.Guard(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, d.URL(), http.NoBody))
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	require.Equal(t, "refit-ui-"+port, cookies[0].Name)
	require.Equal(t, http.SameSiteStrictMode, cookies[0].SameSite)
	require.True(t, cookies[0].HttpOnly)
	require.NotEqual(t, d.token, cookies[0].Value)
	require.GreaterOrEqual(t, len(d.token), 26, "128 bits")
	require.NotEqual(t, d.URL(), newDoor(t).URL())
}

func TestListen(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0:0", ":0", "[::]:0", "[::1]:0", "192.0.2.1:80", "example.com:80", "127.0.0.2:0", "127.0.0.1", "localhost.example:0", "127.1:0", "",
	} {
		_, err := Listen(t.Context(), address)
		require.Error(t, err, address)
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(t.Context(), address)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(l.Addr().String(), "127.0.0.1:"))
		require.NoError(t, l.Close())
	}
}

func TestServe(t *testing.T) {
	f := blind(t, uitest.New(uitest.Fleet()...))
	l, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	d := NewDoor(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, f, d) }()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	fetch := func(to string) (int, string) {
		res, err := c.Get(to)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	at, err := url.Parse(d.URL())
	require.NoError(t, err)
	base := "http://" + at.Host
	code, _ := fetch(base + "/")
	require.Equal(t, http.StatusUnauthorized, code)
	code, body := fetch(d.URL())
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `content="0;url=/"`)
	code, body = fetch(base + "/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `<script type="module" src="app.js">`)
	for _, file := range []string{"/app.js", "/style.css", "/icon.svg", "/api/fleet"} {
		code, _ = fetch(base + file)
		require.Equal(t, http.StatusOK, code, file)
	}
	code, _ = fetch(base + "/../serve.go")
	require.Equal(t, http.StatusNotFound, code)
	events, err := c.Get(base + "/api/events") // one who listens does not keep it from ending
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, events.Body.Close())
	c.CloseIdleConnections()
}
