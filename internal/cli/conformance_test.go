package cli

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/conformance"
)

// claimsNothing serves an extension that never claims anything, with a failurePolicy.
func claimsNothing(t *testing.T, failurePolicy string) (url, ca string) {
	t.Helper()
	const hook = `{"name":"can-machine","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"CanUpdateMachine"},"timeoutSeconds":30},` +
		`{"name":"update","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"},"failurePolicy":"`
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 20<<20))
		status := "Success"
		if err != nil || !json.Valid(body) {
			status = `Failure","message":"the request can't be read`
		}
		_, _ = io.WriteString(w, `{"status":"`+status+`","handlers":[`+hook+failurePolicy+`"}]}`)
	}))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return server.URL, ca
}

func runConformance(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newRootCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(append([]string{"conformance"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestConformance(t *testing.T) {
	url, ca := claimsNothing(t, "Fail")
	out, err := runConformance(t, "--url", url, "--ca", ca)
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^handler-hooks +Pass +handlers: 2$`, out)
	require.Regexp(t, `(?m)^patch-applies +Skip +no request was answered with a patch`, out)
	require.Contains(t, out, " 0 broken, ")
}

func TestConformanceOfAWrongOne(t *testing.T) {
	url, ca := claimsNothing(t, "Ignore")
	out, err := runConformance(t, "--url", url, "--ca", ca)
	var status *exitStatus
	require.ErrorAs(t, err, &status)
	require.Equal(t, 2, status.code)
	require.Contains(t, out, "\nfailure-policy: The failurePolicy of handlers is Fail")
	require.Contains(t, out, "  - the failurePolicy of handler \"update\" is \"Ignore\"\n")

	out, err = runConformance(t, "--url", url, "--ca", ca, "-o", "json")
	require.ErrorAs(t, err, &status)
	var report conformance.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, []string{"failure-policy"}, report.Broken())
	require.Equal(t, []string{"can-machine", "update"}, report.Handlers)
}

func TestConformanceRefuses(t *testing.T) {
	url, ca := claimsNothing(t, "Fail")
	update := filepath.Join("..", "..", "handlers", "testdata", "updatemachine-worker.json")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"http":                       {[]string{"--url", "http://127.0.0.1:1", "--ca", ca}, "has to begin with https://"},
		"no bundle":                  {[]string{"--url", url, "--ca", filepath.Join(t.TempDir(), "none")}, "--ca"},
		"a bundle that is none":      {[]string{"--url", url, "--ca", update}, "there is no certificate in the CA bundle"},
		"a certificate without key":  {[]string{"--url", url, "--ca", ca, "--cert", ca}, "--cert and --key go together"},
		"a key that is none":         {[]string{"--url", url, "--ca", ca, "--cert", ca, "--key", ca}, "--cert and --key"},
		"an update that nobody asks": {[]string{"--url", url, "--ca", ca, "-f", update}, "it is sent with --update-machine only"},
		"another output":             {[]string{"--url", url, "--ca", ca, "-o", "xml"}, `--output is "xml"`},
		"no such handler":            {[]string{"--url", url, "--ca", ca, "--handler", "none"}, `no handler "none"`},
		"another name":               {[]string{"--url", url, "--ca", ca, "--server-name", "elsewhere"}, "ask for the extension's handlers"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runConformance(t, tc.args...)
			require.ErrorContains(t, err, tc.want)
			var status *exitStatus
			require.False(t, errors.As(err, &status), "it is exit status 1")
		})
	}
}
