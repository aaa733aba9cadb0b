package ui

import (
	"context"
	_ "embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

// Prefix is the path under which a server has the page. To look at it takes the right to get the non-resource URLs below.
const Prefix = "/ui/"

// me is what answers to whom may see the page.
const me = Prefix + "api/me"

// Recheck is how long what was found out about a token counts. Streams of news end after it, and are asked for again.
const Recheck = time.Minute

const maxForm = 16 << 10

//go:embed login.html
var loginText string

var loginPage = template.Must(template.New("login").Parse(loginText))

// Hosted serves the page below Prefix. What it shows is answered to whom authorize lets, which is asked with the token that somebody has logged in
// with, or that an authenticating proxy has added. The secret seals tokens in cookies, and may change, which ends all logins. The page's files are no secret. The
// server runs f beside it.
func (f *Fleet) Hosted(authorize func(http.Handler) http.Handler, secret func() ([]byte, error)) http.Handler {
	seal := sealer{secret}
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is built in
	}
	inner := http.NewServeMux()
	inner.HandleFunc("GET "+me, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	answers := http.StripPrefix(strings.TrimSuffix(Prefix, "/"), f.API())
	for _, what := range questions {
		inner.Handle("GET "+Prefix+"api/"+what, answers)
	}
	inner.Handle("GET "+Prefix+"api/"+events, forAWhile(Recheck, answers))
	api := onlyWhatThereIs(inner, authorize(inner))
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler(Prefix, http.StatusSeeOther))
	mux.Handle("GET "+Prefix, http.StripPrefix(Prefix, http.FileServerFS(files)))
	mux.Handle("GET "+Prefix+"api/", withToken(seal, api))
	mux.HandleFunc("GET "+Prefix+"login", func(w http.ResponseWriter, _ *http.Request) { askForToken(w, http.StatusOK, "") })
	mux.HandleFunc("POST "+Prefix+"login", func(w http.ResponseWriter, r *http.Request) { logIn(w, r, seal, api) })
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

// onlyWhatThereIs has what is not there be told without asking anybody.
func onlyWhatThereIs(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			mux.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forAWhile ends an answer that goes on when it is to be asked again who may see it.
func forAWhile(most time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), most)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withToken puts the token of the cookie where bearer tokens are looked for.
func withToken(seal sealer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer") // of what next refuses
		if r.Header.Get("Authorization") == "" {
			token, ok, err := seal.open(r)
			switch {
			case err != nil:
				refuse(w, http.StatusInternalServerError, "The cookie can't be opened for now.")
				return
			case !ok:
				refuse(w, http.StatusUnauthorized, "Nobody has logged in: open "+Prefix+"login.")
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
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
func logIn(w http.ResponseWriter, r *http.Request, seal sealer, api http.Handler) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		askForToken(w, http.StatusBadRequest, "No token was sent.")
		return
	case len(token) > maxToken:
		askForToken(w, http.StatusBadRequest, "The token is too long to be kept by a browser. An authenticating proxy can send it.")
		return
	case noToken(token):
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
		cookie, err := seal.seal(token)
		if err != nil {
			askForToken(w, http.StatusInternalServerError, "The token can't be kept for now. Try again.")
			return
		}
		http.SetCookie(w, cookie)
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
