package ui

import (
	_ "embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
)

// Prefix is the path under which a server has the page. To look at it takes the right to get the non-resource URLs below.
const Prefix = "/ui/"

// tokenCookie has the bearer token of whoever has logged in. By its name, browsers take it from this host alone and send it over TLS alone.
const tokenCookie = "__Host-refit-ui"

// me is what answers to whom may see the page.
const me = Prefix + "api/me"

const (
	// maxToken is what fits into a cookie, in bytes.
	maxToken = 3800
	maxForm  = 16 << 10
)

//go:embed login.html
var loginText string

var loginPage = template.Must(template.New("login").Parse(loginText))

// Hosted serves the page below Prefix. What it shows is answered to whom authorize lets, which is asked with the token that somebody has logged in
// with, or that an authenticating proxy has added. Its files are no secret. The server runs f beside it.
func (f *Fleet) Hosted(authorize func(http.Handler) http.Handler) http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is built in
	}
	inner := http.NewServeMux()
	inner.HandleFunc("GET "+me, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	inner.Handle("GET "+Prefix+"api/", http.StripPrefix(strings.TrimSuffix(Prefix, "/"), f.API()))
	api := authorize(inner)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler(Prefix, http.StatusSeeOther))
	mux.Handle("GET "+Prefix, http.StripPrefix(Prefix, http.FileServerFS(files)))
	mux.Handle("GET "+Prefix+"api/", withToken(api))
	mux.HandleFunc("GET "+Prefix+"login", func(w http.ResponseWriter, _ *http.Request) { askForToken(w, http.StatusOK, "") })
	mux.HandleFunc("POST "+Prefix+"login", func(w http.ResponseWriter, r *http.Request) { logIn(w, r, api) })
	mux.HandleFunc("POST "+Prefix+"logout", logOut)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if foreign(r) {
			refuse(w, http.StatusForbidden, "Another site asks.")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// withToken puts the token of the cookie where bearer tokens are looked for.
func withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer") // of what next refuses
		if r.Header.Get("Authorization") == "" {
			cookie, err := r.Cookie(tokenCookie)
			if err != nil {
				refuse(w, http.StatusUnauthorized, "Nobody has logged in: open "+Prefix+"login.")
				return
			}
			r.Header.Set("Authorization", "Bearer "+cookie.Value)
		}
		r.Header.Del("Cookie")
		next.ServeHTTP(w, r)
	})
}

// askForToken shows the form, and what is wrong with the token that was in it.
func askForToken(w http.ResponseWriter, code int, wrong string) {
	w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'none'", "form-action 'self'", 1))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = loginPage.Execute(w, wrong) // who has left is told nothing
}

// logIn keeps a token in the browser, if it is one with which the page may be seen.
func logIn(w http.ResponseWriter, r *http.Request, api http.Handler) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		askForToken(w, http.StatusBadRequest, "No token was sent.")
		return
	case len(token) > maxToken:
		askForToken(w, http.StatusBadRequest, "The token is too long to be kept by a browser. An authenticating proxy can send it.")
		return
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) }):
		askForToken(w, http.StatusBadRequest, "This is no bearer token: it has characters that none has.")
		return
	}
	try := r.Clone(r.Context())
	try.Method, try.Body, try.ContentLength = http.MethodGet, http.NoBody, 0
	try.URL.Path, try.URL.RawPath, try.URL.RawQuery = me, "", ""
	try.Header = http.Header{"Authorization": {"Bearer " + token}}
	switch code := codeOf(api, try); {
	case code == http.StatusUnauthorized:
		askForToken(w, http.StatusUnauthorized, "The API server does not know this token, or it has expired.")
	case code == http.StatusForbidden:
		askForToken(w, http.StatusForbidden, "Whoever has this token may not see the page: it takes the right to get "+Prefix+"*.")
	case code >= http.StatusInternalServerError:
		askForToken(w, http.StatusBadGateway, "The API server could not be asked about the token. Try again.")
	default:
		http.SetCookie(w, &http.Cookie{Name: tokenCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, Prefix, http.StatusSeeOther)
	}
}

func logOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: tokenCookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, Prefix+"login", http.StatusSeeOther)
}

// codeOf returns the code that a request is answered with.
func codeOf(h http.Handler, r *http.Request) int {
	w := &answered{header: http.Header{}, code: http.StatusOK}
	h.ServeHTTP(w, r)
	return w.code
}

// answered keeps of an answer its code.
type answered struct {
	header http.Header
	code   int
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) WriteHeader(code int)        { a.code = code }
func (a *answered) Write(p []byte) (int, error) { return len(p), nil }
