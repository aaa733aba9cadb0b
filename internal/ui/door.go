package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Door lets in who has the token: whoever started the server, who reads it on a terminal. Other users of the machine, and pages of others in the same
// browser, have not got it.
type Door struct {
	// Hosts are the names under which the page is asked for. Under others a page of somebody else might have it taken for its own.
	hosts []string
	// token is in the URL that opens the page, and pass in the cookie that this gives.
	token, pass string
	cookie      string
}

// NewDoor returns the Door of what is served at an address, with a token of its own.
func NewDoor(at net.Addr) *Door {
	_, port, _ := net.SplitHostPort(at.String()) // it is listened on
	return &Door{
		hosts: []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port)},
		token: rand.Text(), pass: rand.Text(), cookie: "refit-ui-" + port, // cookies are those of all ports of a host
	}
}

// URL opens the page.
func (d *Door) URL() string {
	return (&url.URL{Scheme: "http", Host: d.hosts[0], Path: "/", RawQuery: url.Values{"token": {d.token}}.Encode()}).String()
}

// entry goes on to the page. The cookie is not sent with what another site has led to, and so not with a redirect.
const entry = `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="/icon.svg"><title>refit</title></head>` +
	`<body><p><a href="/">Go on to the page</a></p></body></html>`

// Guard admits what asks for the page under its own name, with the token or the cookie, and only reads.
func (d *Door) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		switch {
		case !slices.Contains(d.hosts, strings.ToLower(r.Host)):
			refuse(w, http.StatusMisdirectedRequest, "The page is asked for under a name that is not its own. Open the URL that refit ui printed.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "The page only reads.")
		case foreign(r):
			refuse(w, http.StatusForbidden, "Another site asks.")
		case r.URL.Path == "/" && r.URL.Query().Has("token"):
			d.enter(w, r)
		case !d.has(r):
			refuse(w, http.StatusUnauthorized, "Open the URL that refit ui printed: it has a token. One of an earlier run counts no more.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter gives a cookie for the token.
func (d *Door) enter(w http.ResponseWriter, r *http.Request) {
	if !same(r.URL.Query().Get("token"), d.token) {
		refuse(w, http.StatusForbidden, "The token is not that of this server. Open the URL that refit ui printed last.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.pass, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(entry)) // who has left is told nothing
}

// has reports whether a request comes with the cookie. There may be several of the name: another server of the machine may have set one.
func (d *Door) has(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(d.cookie), func(c *http.Cookie) bool { return same(c.Value, d.pass) })
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// foreign reports whether a browser says that a page of another origin asks. To be led here by a link is no asking.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	led := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet && (r.URL.Path == "/" || r.URL.Path == Prefix)
	return site != "" && site != "same-origin" && site != "none" && !led
}

// policy is what browsers may load into the page.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// secure has browsers load nothing from elsewhere, run nothing that is not a file of the page, and show it in no frame.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
