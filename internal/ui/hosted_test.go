package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/ui/uitest"
)

// known lets the token good see what is asked for, knows the token weak, and has the API server be away for the token away.
func known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			next.ServeHTTP(w, r)
		case "Bearer weak":
			http.Error(w, "no", http.StatusForbidden)
		case "Bearer away":
			http.Error(w, "no", http.StatusBadGateway)
		default:
			http.Error(w, "no", http.StatusUnauthorized)
		}
	})
}

func secret() ([]byte, error) { return []byte("a key"), nil }

func hosted(t *testing.T) http.Handler {
	t.Helper()
	return watching(t, uitest.New(uitest.Fleet()...)).Hosted(known, secret)
}

func request(h http.Handler, method, path string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://refit.example"+path, http.NoBody)
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWhoSeesTheHostedPage(t *testing.T) {
	h := hosted(t)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	cookie := func(token string) func(*http.Request) {
		return func(r *http.Request) {
			c, err := sealer{secret}.seal(token)
			require.NoError(t, err)
			r.AddCookie(c)
		}
	}
	for name, tc := range map[string]struct {
		method, path string
		edit         func(*http.Request)
		code         int
	}{
		"the page has no secret":          {"GET", "/ui/", nil, 200},
		"its files":                       {"GET", "/ui/app.js", nil, 200},
		"from the root one is led to it":  {"GET", "/", nil, 303},
		"without a token":                 {"GET", "/ui/api/fleet", nil, 401},
		"with a token":                    {"GET", "/ui/api/fleet", header("Authorization", "Bearer good"), 200},
		"with a token that was kept":      {"GET", "/ui/api/fleet", cookie("good"), 200},
		"with one that nobody has sealed": {"GET", "/ui/api/fleet", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: tokenCookie, Value: "good"}) }, 401},
		"with one of another secret": {"GET", "/ui/api/fleet", func(r *http.Request) {
			c, err := sealer{func() ([]byte, error) { return []byte("another key"), nil }}.seal("good")
			require.NoError(t, err)
			r.AddCookie(c)
		}, 401},
		"what is not there is told at once":  {"GET", "/ui/api/other", cookie("away"), 404},
		"with one that is not known":         {"GET", "/ui/api/fleet", cookie("other"), 401},
		"of somebody who may not":            {"GET", "/ui/api/fleet", cookie("weak"), 403},
		"news, without a token":              {"GET", "/ui/api/events", nil, 401},
		"an update, of somebody who may not": {"GET", "/ui/api/update", cookie("weak"), 403},
		"not below the prefix":               {"GET", "/api/fleet", cookie("good"), 404},
		"around the prefix":                  {"GET", "/ui/../api/fleet", cookie("good"), 307},
		"to write":                           {"POST", "/ui/api/fleet", cookie("good"), 405},
		"another site asks":                  {"GET", "/ui/api/fleet", func(r *http.Request) { cookie("good")(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another site logs in": {"POST", "/ui/login", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		}, 403},
		"another site leads to the page": {"GET", "/ui/", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := request(h, tc.method, tc.path, tc.edit)
			require.Equal(t, tc.code, w.Code, w.Body.String())
			require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
			require.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
			if tc.code == http.StatusUnauthorized {
				require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"), "by which the page knows that somebody has to log in")
			}
		})
	}
}

func TestLogIn(t *testing.T) {
	h := hosted(t)
	for name, tc := range map[string]struct {
		token string
		code  int
		says  string
	}{
		"a good one":                          {" good\n", 303, ""},
		"none":                                {" ", 400, "No token was sent."},
		"one that is not known":               {"other", 401, "does not know this token"},
		"of somebody who may not":             {"weak", 403, "may not see the page"},
		"while the API server can't be asked": {"away", 502, "could not be asked"},
		"one that is none":                    {"a b", 400, "no bearer token"},
		"one that is too long":                {strings.Repeat("x", maxToken+1), 400, "too long"},
		"a form that is too long":             {strings.Repeat("x", maxForm), 400, "No token was sent."},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "https://refit.example/ui/login", strings.NewReader(url.Values{"token": {tc.token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, tc.code, w.Code)
			require.Contains(t, w.Body.String(), tc.says)
			require.NotContains(t, w.Body.String(), `value="`, "no token is shown again")
			cookies := w.Result().Cookies()
			if tc.code != http.StatusSeeOther {
				require.Empty(t, cookies)
				return
			}
			require.Len(t, cookies, 1)
			require.NotContains(t, cookies[0].Value, "good", "what listens on another port of the host is sent it, too")
			r = httptest.NewRequest(http.MethodGet, "https://refit.example/ui/api/fleet", http.NoBody)
			r.AddCookie(cookies[0])
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code)
			require.True(t, cookies[0].HttpOnly && cookies[0].Secure && cookies[0].SameSite == http.SameSiteStrictMode)
		})
	}
	w := request(h, "POST", "/ui/logout", nil)
	require.Equal(t, -1, w.Result().Cookies()[0].MaxAge)
	require.Contains(t, request(h, "GET", "/ui/login", nil).Header().Get("Content-Security-Policy"), "form-action 'self'")
}

func TestNewsEndWhenTheTokenIsToBeLookedAtAgain(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forAWhile(50*time.Millisecond, f.API()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/events", http.NoBody))
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
}

func TestACookieOfTheLongestTokenIsTaken(t *testing.T) {
	c, err := sealer{secret}.seal(strings.Repeat("x", maxToken))
	require.NoError(t, err)
	require.Less(t, len(c.String()), 4096, "browsers take no longer ones")
}
