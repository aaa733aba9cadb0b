package tracing

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatCanBeNoEndpointIsRefused when the server starts, and by the chart before that: later nobody would see more than a line in the log.
func TestWhatCanBeNoEndpointIsRefused(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "charts", "refit", "values.schema.json"))
	require.NoError(t, err)
	var schema struct {
		Properties struct {
			Tracing struct {
				Properties struct{ Endpoint struct{ Pattern string } }
			}
		}
	}
	require.NoError(t, json.Unmarshal(content, &schema))
	pattern := schema.Properties.Tracing.Properties.Endpoint.Pattern
	require.Equal(t, "^("+endpoint+")?$", pattern)
	chart := regexp.MustCompile(pattern)

	for _, good := range []string{
		"", "otel:1", "otel:65535", "otel:4317", "otel-collector.observability.svc.cluster.local.:4317", "my_otel:4317", "127.0.0.1:4317", "[::1]:4317", "[2001:db8::1]:60000", "[::ffff:10.0.0.1]:4317",
	} {
		require.NoError(t, ValidateEndpoint(good), good)
		require.True(t, chart.MatchString(good), good)
	}
	for _, bad := range []string{
		"collector.observability", ":4317", "otel:", "otel:0", "otel:65536", "otel:99999999", "otel:04317", "otel:4317:4317", "otel:grpc", "otel:-1", "otel: 4317", "otel:4317\n", "otel\n:4317",
		"http://otel:4317", "otel:4317/v1/traces", "dns:///otel:4317", "-otel:4317", "otel-:4317", ".otel:4317", "a..b:4317", "::1:4317", "[::1]", "[]:4317", "[otel]:4317", "[::1:4317", ".:4317", "a b:4317", "4317",
	} {
		_, err := New(t.Context(), Options{Endpoint: bad, Insecure: true, Ratio: 1})
		require.ErrorContains(t, err, "is no host and port, such as", bad)
		require.False(t, chart.MatchString(bad), bad)
	}
	for _, bad := range []string{"[::1::2]:4317", "[1:2]:4317", "[:" + strings.Repeat("1", 99) + "]:4317"} { // no pattern tells what is no address
		require.Error(t, ValidateEndpoint(bad), bad)
	}
}
