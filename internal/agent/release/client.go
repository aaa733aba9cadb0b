package release

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

const (
	// maxRedirects is as many as browsers follow, and Go.
	maxRedirects = 10
	// stall is how long a server may say nothing.
	stall = time.Minute
)

// errRedirect is why a redirect is not followed.
var errRedirect = errors.New("the server redirects from https to where nothing is encrypted, or too often")

// newClient returns a client that goes by a proxy, "" for none. Connections are not kept: few things are fetched, and those are large.
func newClient(proxy, noProxy string, trust *tls.Config) (*http.Client, error) {
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, errors.New("the proxy is not a URL of http or https") // not quoted: there can be a password in it
		}
	}
	config := httpproxy.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: noProxy}
	choose := config.ProxyFunc()
	dialer := &net.Dialer{Timeout: stall}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: func(r *http.Request) (*url.URL, error) { return choose(r.URL) },
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return impatient{c}, nil
			},
			TLSClientConfig:     trust,
			TLSHandshakeTimeout: stall,
			DisableKeepAlives:   true,
			DisableCompression:  true, // digests are of the bytes that are served
		},
		CheckRedirect: checkRedirect,
	}, nil
}

// impatient is a connection on which the other side has to say something from time to time.
type impatient struct{ net.Conn }

// Read implements net.Conn.
func (c impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL.Scheme
	if len(via) >= maxRedirects || r.URL.Scheme != "https" && (r.URL.Scheme != "http" || last == "https") {
		return errRedirect
	}
	return nil
}

// plain returns a URL for people: without the name and the password, and without the query, in which signatures and tokens are.
func plain(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// again marks a failure after which another try can succeed.
type again struct{ error }

// Unwrap returns the failure.
func (a again) Unwrap() error { return a.error }

// failure says why a request failed, without the URL that errors of net/http quote.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errRedirect) {
		return errRedirect
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return fmt.Errorf("the server is not trusted: %w; put its CA into the node's trust store", err)
	case strings.Contains(err.Error(), "Location header"):
		return errors.New("the server redirects to what is no URL")
	}
	return again{err}
}

// refusal says why an answer is none of use, or returns nil.
func refusal(resp *http.Response) error {
	err := fmt.Errorf("the server answers %s", resp.Status)
	switch code := resp.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
		return nil
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 ||
		code == http.StatusRequestedRangeNotSatisfiable:
		return again{err}
	}
	return err
}
