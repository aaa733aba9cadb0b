package health

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/webhook"
)

// standIn speaks as much of Prometheus' HTTP API as a gate asks for. make test-prometheus asks a real one.
func standIn(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, body)
	}
}

func result(kind, value string) http.HandlerFunc {
	return says(http.StatusOK, `{"status":"success","data":{"resultType":"`+kind+`","result":`+value+`}}`)
}

func vector(values ...string) http.HandlerFunc {
	samples := make([]string, len(values))
	for i, v := range values {
		samples[i] = fmt.Sprintf(`{"metric":{"job":"api-%d"},"value":[1,"%s"]}`, i, v)
	}
	return result("vector", "["+strings.Join(samples, ",")+"]")
}

// ask asks a gate of the namespace fleet and the cluster c1 once.
func ask(t *testing.T, g refitv1.HealthGate, sources *Sources) Answer {
	t.Helper()
	gates, err := Compile([]refitv1.HealthGate{g})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), gates[0].timeout)
	defer cancel()
	found, err := gates[0].question.ask(ctx, sources, Subject{Namespace: "fleet", Cluster: "c1"})
	return answerOf(managementtest.Start, found, err)
}

func TestPrometheus(t *testing.T) {
	operator := func(o refitv1.ComparisonOperator, value string) edit {
		return func(g *refitv1.HealthGate) { g.Prometheus.MustBe = refitv1.Comparison{Operator: o, Value: value} }
	}
	ignoreEmpty := func(g *refitv1.HealthGate) { g.Prometheus.OnEmpty = refitv1.IgnoreOnUnknown }
	const passing, failing, unknown = refitv1.GatePassing, refitv1.GateFailing, refitv1.GateUnknown
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		gate   edit
		state  refitv1.GateState
		says   string
	}{
		"it holds":                             {vector("0.002"), nil, passing, ""},
		"it does not":                          {vector("0.031"), nil, failing, `error_ratio is 0.031 for {job="api-0"}, and has to be LessThan 0.01`},
		"one of several does not":              {vector("0.001", "0.5", "0.6"), nil, failing, `error_ratio is 0.5 for {job="api-1"}, and has to be LessThan 0.01 (2 series are not)`},
		"a scalar":                             {result("scalar", `[1,"0.5"]`), nil, failing, "error_ratio is 0.5, and has to be LessThan 0.01"},
		"infinity":                             {vector("+Inf"), nil, failing, "is +Inf"},
		"equal, which is not less":             {vector("0.01"), nil, failing, "is 0.01"},
		"equal":                                {vector("3"), operator(refitv1.Equal, "3"), passing, ""},
		"not equal":                            {vector("3"), operator(refitv1.NotEqual, "3"), failing, "has to be NotEqual 3"},
		"at least":                             {vector("3"), operator(refitv1.GreaterThanOrEqual, "3"), passing, ""},
		"more":                                 {vector("3"), operator(refitv1.GreaterThan, "3"), failing, "has to be GreaterThan 3"},
		"at most":                              {vector("4"), operator(refitv1.LessThanOrEqual, "3"), failing, "is 4"},
		"nothing":                              {vector(), nil, unknown, "error_ratio has no result (onEmpty: Hold)"},
		"nothing is fine":                      {vector(), ignoreEmpty, passing, ""},
		"no number":                            {vector("0.001", "NaN"), nil, unknown, "error_ratio has a series without a number, NaN (onEmpty: Hold)"},
		"no number is fine":                    {vector("0.001", "NaN"), ignoreEmpty, passing, ""},
		"no number, and one that is too large": {vector("NaN", "0.5"), ignoreEmpty, failing, "is 0.5"},
		"a range":                              {result("matrix", `[]`), nil, unknown, "is a matrix, and an instant vector or a scalar is needed"},
		"a histogram": {
			result("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[[0,"0","1","1"]]}]}]`), nil, unknown, "has histograms",
		},
		"a warning": {
			says(200, `{"status":"success","warnings":["store b is away"],"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0"]}]}}`), nil, unknown, "it answers with a warning: store b is away",
		},
		"a mistake in the query": {says(400, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected end"}`), nil, unknown, "bad_data: parse error: unexpected end"},
		"it takes too long":      {says(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`), nil, unknown, "server error: 503"},
		"nobody is let in":       {says(401, "your token is secret-1"), nil, unknown, "client error: 401"},
		"no Prometheus":          {says(200, "<html>secret-1</html>"), nil, unknown, "the answer is none of Prometheus' HTTP API"},
		"JSON of another kind":   {says(200, `{"token":"secret-1"}`), nil, unknown, "the answer is none of Prometheus' HTTP API"},
		"an error of another kind": {
			says(400, `{"status":"error","errorType":"secret-1","error":"secret-1"}`), nil, unknown, "the answer is none of Prometheus' HTTP API",
		},
		"a longer answer": {result("vector", "["+strings.Repeat(" ", mostBody)+"]"), nil, unknown, "the answer is longer than 1048576 bytes"},
		"brackets":        {says(200, strings.Repeat("[", mostBody-1)), nil, unknown, "the answer is none of Prometheus' HTTP API"},
		"another address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/secret-1", http.StatusTemporaryRedirect)
		}, nil, unknown, "it redirects to another address"},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_, _ = conn.Write([]byte("SSH-2.0-secret-1\r\n"))
			_ = conn.Close()
		}, nil, unknown, "it does not answer as an HTTP server does"},
		"a name with what terminals obey": {
			result("vector", `[{"metric":{"job":"a\u001b[2J\nb"},"value":[1,"0.5"]}]`), nil, failing, `{job="a\x1b[2J\nb"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			s := standIn(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path+" "+r.FormValue("query"))
				tc.answer(w, r)
			})
			g := errorRatio(s.URL + "/prefix")
			if tc.gate != nil {
				tc.gate(&g)
			}
			a := ask(t, g, &Sources{})
			require.Equal(t, tc.state, a.State, a.Says)
			require.Contains(t, a.Says, tc.says)
			require.Equal(t, tc.says == "", a.Says == "")
			require.NotContains(t, a.Says, "secret-1", "what others have answered is not shown")
			require.Equal(t, []string{"/prefix/api/v1/query error_ratio"}, asked)
		})
	}
}

// TestSeriesAreToldInTheirOrder, whatever the order is in which they are answered.
func TestSeriesAreToldInTheirOrder(t *testing.T) {
	for _, jobs := range [][]string{{"a", "b"}, {"b", "a"}} {
		s := standIn(t, result("vector", fmt.Sprintf(`[{"metric":{"job":"%s"},"value":[1,"1"]},{"metric":{"job":"%s"},"value":[1,"1"]}]`, jobs[0], jobs[1])))
		require.Contains(t, ask(t, errorRatio(s.URL), &Sources{}).Says, `{job="a"}`)
	}
}

func TestPrometheusIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	a := ask(t, errorRatio("http://"+l.Addr().String()), &Sources{})
	require.Equal(t, refitv1.GateUnknown, a.State)
	require.Contains(t, a.Says, "connection refused")

	// One that accepts and says nothing.
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	a = ask(t, errorRatio("http://"+l.Addr().String(), func(g *refitv1.HealthGate) { g.Timeout = "1s" }), &Sources{})
	require.Equal(t, refitv1.GateUnknown, a.State)
	require.Contains(t, a.Says, "it has not answered in time")
}

// secrets is a management cluster with a Secret s.
func secrets(t *testing.T, data map[string]string) *Sources {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "s"}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return &Sources{Management: managementtest.NewBuilder(managementtest.NewScheme()).WithObjects(s).Build()}
}

func withSecret(g *refitv1.HealthGate) {
	g.Prometheus.Auth = &refitv1.PrometheusAuth{SecretRef: refitv1.GateSecret{Name: "s"}}
}

func TestWhoRefitIs(t *testing.T) {
	dir := t.TempDir()
	_, err := webhook.WriteSelfSigned(dir, []string{"refit"}, time.Now())
	require.NoError(t, err)
	file := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}
	crt, key := file("tls.crt"), file("tls.key")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-1" && len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		vector("0")(w, r)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for name, tc := range map[string]struct {
		data map[string]string
		says string // empty: it is let in
	}{
		"a token":                     {map[string]string{"token": "token-1", "ca.crt": ca}, ""},
		"a certificate":               {map[string]string{"tls.crt": crt, "tls.key": key, "ca.crt": ca}, ""},
		"another token":               {map[string]string{"token": "token-2", "ca.crt": ca}, "client error: 401"},
		"the server is not known":     {map[string]string{"token": "token-1"}, "failed to verify certificate"},
		"no authority":                {map[string]string{"token": "token-1", "ca.crt": "none"}, "Secret fleet/s: ca.crt has no certificate"},
		"a certificate without a key": {map[string]string{"tls.crt": crt, "ca.crt": ca}, "Secret fleet/s: tls.crt and tls.key are no certificate with its key"},
		"a token with a line break":   {map[string]string{"token": "token-1\n", "ca.crt": ca}, "Secret fleet/s: token is none"},
		"nothing":                     {map[string]string{"password": "x"}, "Secret fleet/s: it has none of token"},
		"only the authorities":        {map[string]string{"ca.crt": ca}, "client error: 401"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, errorRatio(s.URL, withSecret), secrets(t, tc.data))
			require.Contains(t, a.Says, tc.says)
			require.Equal(t, tc.says == "", a.State == refitv1.GatePassing, a.Says)
			require.NotContains(t, a.Says, "token-1")
		})
	}
	a := ask(t, errorRatio(s.URL, withSecret), &Sources{Management: managementtest.NewBuilder(managementtest.NewScheme()).Build()})
	require.Contains(t, a.Says, `read Secret fleet/s: secrets "s" not found`)
}
