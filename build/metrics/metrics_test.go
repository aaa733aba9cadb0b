package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsNotUnderstoodIsTold: a page or a dashboard would lack it.
func TestWhatIsNotUnderstoodIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		code string
		want []Metric
		fail string
	}{
		"a description": {`var d = prometheus.NewDesc("refit_a", "A.", []string{"x"}, nil)`, []Metric{{"refit_a", "A.", Gauge, []string{"x"}}}, ""},
		"a description of a counter": {
			`var d = prometheus.NewDesc("refit_a_total", "A"+" b.", nil, nil)
			func f() { prometheus.MustNewConstMetric(d, prometheus.CounterValue, 1) }`,
			[]Metric{{"refit_a_total", "A b.", Counter, nil}}, ""},
		"options": {`var m = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "refit_a_seconds", Help: "A."}, labels)
			var labels = []string{"x", "y"}`, []Metric{{"refit_a_seconds", "A.", Histogram, []string{"x", "y"}}}, ""},
		"constant labels": {`var m = prometheus.NewGauge(prometheus.GaugeOpts{Name: "refit_a", Help: "A.", ConstLabels: prometheus.Labels{"v": v}})`,
			[]Metric{{"refit_a", "A.", Gauge, []string{"v"}}}, ""},
		"of others":                     {`var d = prometheus.NewDesc("go_a", "A.", nil, nil)`, []Metric{}, ""},
		"labels that a call makes":      {`var d = prometheus.NewDesc("refit_a", "A.", labels(), nil)`, nil, "the labels of refit_a are not understood"},
		"a counter without description": {`func f() { prometheus.MustNewConstMetric(d(), prometheus.CounterValue, 1) }`, nil, "of which metric"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range directories {
				require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o700))
			}
			require.NoError(t, os.WriteFile(filepath.Join(root, "internal", "a.go"), []byte("package a\n"+tc.code), 0o600))
			got, err := Read(root)
			if tc.fail != "" {
				require.ErrorContains(t, err, tc.fail)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestEachMetricHasAType that goes with its name: what only grows ends with _total.
func TestEachMetricHasAType(t *testing.T) {
	all, err := Read(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.Greater(t, len(all), 30)
	for _, m := range all {
		require.Contains(t, []Type{Gauge, Counter, Histogram}, m.Type, m.Name)
		require.Equal(t, strings.HasSuffix(m.Name, "_total"), m.Type == Counter, m.Name)
		require.NotEmpty(t, m.Help, m.Name)
	}
}
