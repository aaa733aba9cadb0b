package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// maxAnswer is the largest answer that is read, in bytes.
	maxAnswer = 1 << 20
	// discoveryTimeout is how long discovery is waited for, as Cluster API does.
	discoveryTimeout = 10 * time.Second
	jsonType         = "application/json"
)

// NewClient returns a client that calls an extension as Cluster API's managers do: with authorities of its own, in PEM, and without following
// redirects. The certificate is that of the client; without one it shows none. The name is that of the server's certificate; empty: the URL's host.
func NewClient(authorities []byte, certificate *tls.Certificate, serverName string) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, errors.New("there is no certificate in the CA bundle, which has to be PEM")
	}
	cfg := &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}
	if certificate != nil {
		cfg.Certificates = []tls.Certificate{*certificate}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}, nil
}

// reply is what comes back over HTTP.
type reply struct {
	err   error // of the connection
	late  bool  // it did not come within the timeout
	code  int
	body  []byte
	large bool // there is more than maxAnswer of it
}

// refusedWithoutType reports whether the request may have been refused since it had no Content-Type.
func (p *reply) refusedWithoutType() bool {
	return p.err == nil && p.code >= http.StatusBadRequest && p.code < http.StatusInternalServerError
}

// caller sends requests.
type caller struct {
	client *http.Client
	base   *url.URL
	// contentType is what requests have: nothing, as Cluster API's, unless the extension takes none without.
	contentType string
	// typeless says which answer showed that it does not; empty if it does.
	typeless string
}

// post sends a body as Cluster API does. An extension that takes it only with a Content-Type is given one from then on, so that the rest of it is
// looked at, too.
func (c *caller) post(ctx context.Context, path string, timeout time.Duration, body []byte) reply {
	p := c.send(ctx, path, c.contentType, timeout, body)
	if c.contentType != "" || !p.refusedWithoutType() {
		return p
	}
	again := c.send(ctx, path, jsonType, timeout, body)
	if again.err != nil || again.code != http.StatusOK {
		return p
	}
	c.contentType = jsonType
	c.typeless = fmt.Sprintf("%s without a Content-Type is answered with the HTTP status %d, and with %s it is 200", path, p.code, jsonType)
	return again
}

func (c *caller) send(ctx context.Context, path, contentType string, timeout time.Duration, body []byte) (p reply) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := c.base.JoinPath(path)
	query := to.Query()
	query.Set("timeout", timeout.String())
	to.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(within, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.client.Do(request)
	if err == nil {
		p.code = response.StatusCode
		p.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
		_ = response.Body.Close() // it was only read
	}
	if len(p.body) > maxAnswer {
		p.large, p.body = true, nil
	}
	p.err = err
	p.late = err != nil && errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil
	return p
}
