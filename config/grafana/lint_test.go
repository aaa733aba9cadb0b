package grafana

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// TestMetricsAreNamedAsPrometheusHasIt has promlint look at all that refit serves, as its source declares it.
func TestMetricsAreNamedAsPrometheusHasIt(t *testing.T) {
	all, helps := served(t), declaredHelp(t)
	var families []*dto.MetricFamily
	for name, labels := range all {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if base != name && len(labels) > 0 && labels[len(labels)-1] == "le" {
			continue // of a histogram, which is there by its own name
		}
		_, isHistogram := all[name+"_bucket"]
		require.NotEmpty(t, helps[name], "%s has no help", name)
		require.Regexp(t, `^[A-Z0-9].*[.;]$`, strings.TrimSpace(helps[name]), "the help of %s is a sentence", name)
		families = append(families, family(name, helps[name], labels, isHistogram))
	}
	require.Greater(t, len(families), 30)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for name := range all {
		require.NotRegexp(t, `_age_|_ago_|_since_`, name, "what happens at some time is a timestamp")
	}
}

// family is a metric with one sample. What only grows is a counter, by its name: promlint demands that the other way round.
func family(name, help string, labels []string, isHistogram bool) *dto.MetricFamily {
	m := &dto.Metric{}
	for _, l := range labels {
		m.Label = append(m.Label, &dto.LabelPair{Name: new(l), Value: new("x")})
	}
	kind := dto.MetricType_GAUGE
	switch {
	case isHistogram:
		kind, m.Histogram = dto.MetricType_HISTOGRAM, &dto.Histogram{}
	case strings.HasSuffix(name, "_total"):
		kind, m.Counter = dto.MetricType_COUNTER, &dto.Counter{}
	default:
		m.Gauge = &dto.Gauge{}
	}
	f := &dto.MetricFamily{Name: new(name), Type: kind.Enum(), Metric: []*dto.Metric{m}}
	if help != "" {
		f.Help = new(help)
	}
	return f
}

func TestPromlintFinds(t *testing.T) {
	for name, f := range map[string]*dto.MetricFamily{
		"no help":        family("refit_x_seconds", "", nil, false),
		"another unit":   family("refit_x_milliseconds", "X.", nil, false),
		"abbreviated":    family("refit_x_s", "X.", nil, false),
		"no help at all": family("refit_y", "", []string{"a"}, false),
	} {
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{f}).Lint()
		require.NoError(t, err)
		require.NotEmpty(t, problems, name)
	}
}
