package server

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capi-refit/refit/webhook"
)

func TestClientFlags(t *testing.T) {
	dir := t.TempDir()
	ca, err := webhook.WriteSelfSigned(dir, []string{"x"}, time.Now())
	require.NoError(t, err)
	file := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))
	for name, tc := range map[string]struct {
		args          []string
		fails, logged string
		required      string
	}{
		"neither":               {nil, "", "anybody who reaches their port", "0"},
		"an authority":          {[]string{"--client-ca-file=" + file}, "", "any certificate of the authorities", "1"},
		"an authority and name": {[]string{"--client-ca-file=" + file, "--client-names=core,kcp"}, "", `"names"=["core" "kcp"]`, "1"},
		"names alone":           {[]string{"--client-names=core"}, "without --client-ca-file", "", ""},
		"no names alone":        {[]string{"--client-names="}, "without --client-ca-file", "", ""},
		"an empty list":         {[]string{"--client-ca-file=" + file, "--client-names="}, "no name of a client is accepted", "", ""},
		"an empty name":         {[]string{"--client-ca-file=" + file, "--client-names=core,"}, `"" can't be the name of a client`, "", ""},
		"a pattern":             {[]string{"--client-ca-file=" + file, "--client-names=*.capi-system"}, "in full", "", ""},
		"no file":               {[]string{"--client-ca-file=" + file + "x"}, "--client-ca-file: read the client CA", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var f clientFlags
			fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			f.add(fs)
			require.NoError(t, fs.Parse(tc.args))
			options, err := f.options(t.Context())
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			cfg := &tls.Config{}
			for _, option := range options {
				option(cfg)
			}
			require.Equal(t, tc.required == "1", cfg.ClientAuth == tls.RequireAndVerifyClientCert)

			var lines []string
			reg := prometheus.NewRegistry()
			f.report(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}), reg)
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], tc.logged)
			const metric = "refit_hook_client_certificates_required"
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader("# HELP "+metric+
				" 1 if hooks are answered to clients with an accepted certificate only, 0 if to anybody who reaches the port.\n# TYPE "+metric+" gauge\n"+metric+" "+tc.required+"\n")))
		})
	}
}

// TestMetricsShowTheServingCertificate: so that Prometheus can verify whom it sends its token to.
func TestMetricsShowTheServingCertificate(t *testing.T) {
	o := &options{webhookCertDir: t.TempDir()}
	o.diagnostics.TLSMinVersion = "VersionTLS12"
	o.diagnostics.DiagnosticsAddress = "127.0.0.1:0"
	const host = "refit-metrics.refit-system.svc"
	bundle, err := webhook.WriteSelfSigned(o.webhookCertDir, []string{host}, time.Now())
	require.NoError(t, err)
	_, options, err := o.diagnosticsOptions()
	require.NoError(t, err)
	require.True(t, options.SecureServing)
	require.NotNil(t, options.FilterProvider)
	options.FilterProvider = nil // it asks an API server who asks
	server, err := metricsserver.NewServer(*options, nil, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Start(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-done) })

	address := server.(interface{ GetBindAddr() string })
	require.Eventually(t, func() bool { return address.GetBindAddr() != "" }, time.Minute, 10*time.Millisecond)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute}, Config: &tls.Config{RootCAs: roots, ServerName: host}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address.GetBindAddr())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
