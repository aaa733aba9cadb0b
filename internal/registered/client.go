package registered

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/jsonscan"
	"github.com/capi-refit/refit/internal/plain"
)

// The hooks that are asked, and Discovery.
const (
	CanUpdateMachine    = "CanUpdateMachine"
	CanUpdateMachineSet = "CanUpdateMachineSet"
	UpdateMachine       = "UpdateMachine"
	discovery           = "Discovery"
)

const (
	// maxAnswer is the longest answer, in bytes. What API servers store of the three objects together is not much longer.
	maxAnswer = 2 << 20
	// maxMessage is how much is shown of what a remote says, in bytes.
	maxMessage = 512
)

// Fault is an error of which an updater is the cause, and nobody else.
type Fault struct {
	Updater string
	Err     error
}

// Error implements error.
func (f *Fault) Error() string {
	return fmt.Sprintf("UpdaterRegistration %s: %s", f.Updater, Printable(f.Err.Error()))
}

// Unwrap returns what happened.
func (f *Fault) Unwrap() error { return f.Err }

// Printable is what may be shown of a text that a remote has sent: one line, and not all of a long one.
func Printable(text string) string {
	return plain.Line(text, maxMessage)
}

// caller calls one extension.
type caller struct {
	base *url.URL
	http *http.Client
}

// newCaller returns what calls the extension of a configuration. certificate is nil if nothing is to show who asks.
func newCaller(c *refitv1.UpdaterClientConfig, certificate *tls.Certificate) (*caller, error) {
	base, err := baseOf(c)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CABundle) {
		return nil, errors.New("spec.clientConfig.caBundle has no certificate in PEM")
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	return &caller{base: base, http: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
		// What was asked is for this server alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func baseOf(c *refitv1.UpdaterClientConfig) (*url.URL, error) {
	if s := c.Service; s != nil {
		return &url.URL{Scheme: "https", Host: fmt.Sprintf("%s.%s.svc:%d", s.Name, s.Namespace, s.Port), Path: s.Path}, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, errors.New("spec.clientConfig.url is no https URL")
	}
	return u, nil
}

// call asks one handler of a hook, and has the answer decoded into out.
func (c *caller) call(ctx context.Context, hook, handler string, body []byte, out any) error {
	gvh := runtimecatalog.GroupVersionHook{Group: runtimehooksv1.GroupVersion.Group, Version: runtimehooksv1.GroupVersion.Version, Hook: hook}
	target := c.base.JoinPath(runtimecatalog.GVHToPath(gvh, handler))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return unreached(ctx, hook, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s with HTTP status %d", hook, response.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unreached(ctx, hook, err)
	case len(answer) > maxAnswer:
		return fmt.Errorf("its answer to %s is longer than %d bytes", hook, maxAnswer)
	}
	return decode(hook, answer, out)
}

func unreached(ctx context.Context, hook string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("it has not answered %s in time", hook)
	}
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	return fmt.Errorf("it can't be asked %s: %w", hook, err)
}

// decode decodes an answer after its shape is bounded, if it is one to the hook.
func decode(hook string, answer []byte, out any) error {
	if err := jsonscan.Check(answer); err != nil {
		return fmt.Errorf("its answer to %s is not read: %w", hook, err)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if json.Unmarshal(answer, &head) != nil || json.Unmarshal(answer, out) != nil {
		return fmt.Errorf("its answer to %s can't be read", hook)
	}
	// An extension may leave them out, as some do.
	if !slices.Contains([]string{"", hook + "Response"}, head.Kind) || !slices.Contains([]string{"", runtimehooksv1.GroupVersion.String()}, head.APIVersion) {
		return fmt.Errorf("it answers %s with %q of %q", hook, Printable(head.Kind), Printable(head.APIVersion))
	}
	return nil
}
