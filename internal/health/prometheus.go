package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

const (
	// mostBody bounds an answer. A gate's query has a few series.
	mostBody = 1 << 20
	// mostTold bounds what is repeated of a query, of a series or of an error, in bytes.
	mostTold = 200
)

// prometheusQuestion compares the result of a query.
type prometheusQuestion struct {
	url, query  string
	operator    refitv1.ComparisonOperator
	value       float64
	text        string // the value as it was written
	ignoreEmpty bool
	secret      string // name of the Secret; empty if there is none
}

// compares compare two numbers.
var compares = map[refitv1.ComparisonOperator]func(a, b float64) bool{
	refitv1.LessThan:           func(a, b float64) bool { return a < b },
	refitv1.LessThanOrEqual:    func(a, b float64) bool { return a <= b },
	refitv1.GreaterThan:        func(a, b float64) bool { return a > b },
	refitv1.GreaterThanOrEqual: func(a, b float64) bool { return a >= b },
	refitv1.Equal:              func(a, b float64) bool { return a == b },
	refitv1.NotEqual:           func(a, b float64) bool { return a != b },
}

func (r *reader) prometheus(p *refitv1.PrometheusGate) question {
	q := &prometheusQuestion{url: p.URL, query: p.Query, operator: p.MustBe.Operator, text: p.MustBe.Value}
	if _, err := parseURL(p.URL); err != nil {
		r.wrong("prometheus.url", err)
	}
	if p.Query == "" {
		r.wrong("prometheus.query", errors.New("it is empty"))
	}
	if compares[q.operator] == nil {
		r.wrong("prometheus.mustBe.operator", fmt.Errorf("%q is not known", q.operator))
	}
	var err error
	if q.value, err = strconv.ParseFloat(p.MustBe.Value, 64); err != nil || math.IsNaN(q.value) || math.IsInf(q.value, 0) {
		r.wrong("prometheus.mustBe.value", fmt.Errorf("%q is no number", p.MustBe.Value))
	}
	q.ignoreEmpty = r.unknown("prometheus.onEmpty", p.OnEmpty)
	if p.Auth != nil {
		if q.secret = p.Auth.SecretRef.Name; q.secret == "" {
			r.wrong("prometheus.auth.secretRef.name", errors.New("it is empty"))
		}
	}
	return q
}

// ask implements question.
func (q *prometheusQuestion) ask(ctx context.Context, from *Sources, about Subject) (verdict, error) {
	transport, err := q.transport(ctx, from.Management, about.Namespace)
	if err != nil {
		return verdict{}, err
	}
	prometheus, err := api.NewClient(api.Config{Address: q.url, Client: &http.Client{Transport: transport, CheckRedirect: refuseRedirect}})
	if err != nil {
		return verdict{}, err
	}
	value, warnings, err := prometheusv1.NewAPI(prometheus).Query(ctx, q.query, time.Time{})
	switch {
	case err != nil:
		return verdict{}, fmt.Errorf("query of %s: %w", q.url, told(err))
	case len(warnings) > 0: // such as that a part of the stores did not answer
		return verdict{}, fmt.Errorf("query of %s: it answers with a warning: %s", q.url, short(warnings[0], mostTold))
	}
	return q.judge(value)
}

// judge compares a result.
func (q *prometheusQuestion) judge(result model.Value) (verdict, error) {
	samples, err := samplesOf(result)
	if err != nil {
		return verdict{}, err
	}
	numbers := 0
	var failing []*model.Sample
	for _, s := range samples {
		if math.IsNaN(float64(s.Value)) {
			continue
		}
		if numbers++; !compares[q.operator](float64(s.Value), q.value) {
			failing = append(failing, s)
		}
	}
	switch {
	case len(failing) > 0:
		return verdict{says: q.tell(failing)}, nil
	case q.ignoreEmpty:
	case len(samples) == 0:
		return verdict{}, fmt.Errorf("%s has no result (onEmpty: Hold)", short(q.query, mostTold))
	case numbers < len(samples):
		return verdict{}, fmt.Errorf("%s has a series without a number, NaN (onEmpty: Hold)", short(q.query, mostTold))
	}
	return verdict{holds: true}, nil
}

// tell returns by which value the gate does not hold.
func (q *prometheusQuestion) tell(failing []*model.Sample) string {
	// Prometheus has series in any order, and messages must not change by themselves.
	first := slices.MinFunc(failing, func(a, b *model.Sample) int { return strings.Compare(a.Metric.String(), b.Metric.String()) })
	value := first.Value.String()
	if len(first.Metric) > 0 {
		value += " for " + short(first.Metric.String(), mostTold)
	}
	says := fmt.Sprintf("%s is %s, and has to be %s %s", short(q.query, mostTold), value, q.operator, q.text)
	if len(failing) > 1 {
		says += fmt.Sprintf(" (%d series are not)", len(failing))
	}
	return says
}

// samplesOf returns what a result consists of.
func samplesOf(result model.Value) (model.Vector, error) {
	switch v := result.(type) {
	case *model.Scalar:
		return model.Vector{{Value: v.Value}}, nil
	case model.Vector:
		for _, s := range v {
			if s.Histogram != nil {
				return nil, errors.New("the query's result has histograms, and a number is needed: take histogram_quantile(), say")
			}
		}
		return v, nil
	default:
		return nil, fmt.Errorf("the query's result is a %s, and an instant vector or a scalar is needed", result.Type())
	}
}

// told returns an error of a query as it may be shown. What a server has answered is repeated only where it is an error by Prometheus' API: else
// whoever writes a policy could read with it what only refit reaches.
func told(err error) error {
	var answered *prometheusv1.Error
	if !errors.As(err, &answered) {
		return toldOfTransport(err)
	}
	switch answered.Type {
	case prometheusv1.ErrClient, prometheusv1.ErrServer: // with the code alone
		return errors.New(short(answered.Msg, mostTold))
	case prometheusv1.ErrBadData, prometheusv1.ErrExec, prometheusv1.ErrTimeout, prometheusv1.ErrCanceled:
		return fmt.Errorf("%s: %s", answered.Type, short(answered.Msg, mostTold))
	default:
		return errNoAPI
	}
}

// toldOfTransport returns an error of a connection as it may be shown. net/http quotes what a server has answered that does not speak HTTP.
func toldOfTransport(err error) error {
	var operation *net.OpError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var called *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New("it has not answered in time")
	case errors.Is(err, errTooLong):
		return errTooLong
	case errors.Is(err, errRedirects):
		return errRedirects
	case errors.As(err, &certificate):
		return certificate
	case errors.As(err, &name):
		return name
	case errors.As(err, &operation):
		return operation
	case errors.As(err, &called):
		return errors.New("it does not answer as an HTTP server does, or not by this scheme")
	default:
		return errNoAPI
	}
}

var (
	errRedirects = errors.New("it redirects to another address, which refit does not follow")
	errNoAPI     = errors.New("the answer is none of Prometheus' HTTP API")
)

func refuseRedirect(*http.Request, []*http.Request) error {
	return errRedirects
}

// transport returns what brings one question, with what the Secret has.
func (q *prometheusQuestion) transport(ctx context.Context, secrets client.Reader, namespace string) (http.RoundTripper, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	out := &bounded{next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{Timeout: maxTimeout}).DialContext,
		// Secrets are read for each question, and questions are seconds apart.
		DisableKeepAlives: true, ResponseHeaderTimeout: maxTimeout, MaxResponseHeaderBytes: 1 << 16,
	}}
	if q.secret == "" {
		return out, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: q.secret}
	var secret corev1.Secret
	if err := secrets.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	var err error
	if out.token, err = credentials(&secret, config); err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return out, nil
}

// credentials reads a Secret. Errors have nothing of what is in it.
func credentials(secret *corev1.Secret, config *tls.Config) (token string, err error) {
	token, cert, key, ca := string(secret.Data["token"]), secret.Data["tls.crt"], secret.Data["tls.key"], secret.Data["ca.crt"]
	if len(cert)+len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return "", errors.New("tls.crt and tls.key are no certificate with its key")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return "", errors.New("ca.crt has no certificate")
		}
	}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return "", errors.New("token is none: it has a space, a line break or the like")
		}
	}
	if token == "" && len(cert)+len(ca) == 0 {
		return "", errors.New("it has none of token, tls.crt with tls.key, and ca.crt")
	}
	return token, nil
}

// bounded shows a token, and reads no more of an answer than a gate needs.
type bounded struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: mostBody}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

var errTooLong = fmt.Errorf("the answer is longer than %d bytes: have the query aggregate", mostBody)

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
