package tracing_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/capi-refit/refit/internal/tracing"
	"github.com/capi-refit/refit/internal/tracing/tracingtest"
)

var at = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

func TestProcessesJoinOneTrace(t *testing.T) {
	r := tracingtest.NewReceiver(t)
	of := tracing.Trace("refit", "uid", "digest")
	root := of.Of("update")
	for _, process := range []string{"a", "b"} {
		tracer, shutdown := r.NewTracer(t, process)
		require.True(t, tracer.On())
		if process == "a" {
			tracer.Record(tracing.Span{ID: of.Of("wait"), Parent: root.Span, Name: "wait", Start: at, End: at.Add(time.Minute), Attributes: []attribute.KeyValue{attribute.String("k", "v")}})
		} else {
			tracer.Record(tracing.Span{ID: root, Name: "update", Serves: true, Start: at.Add(time.Hour), End: at, Failed: "NodeFailed"})
		}
		shutdown()
	}
	all := r.Spans()
	require.Len(t, all, 2)
	wait, update := all[0], all[1]
	require.Equal(t, wait.TraceId, update.TraceId)
	require.Equal(t, update.SpanId, wait.ParentSpanId)
	require.Empty(t, update.ParentSpanId)
	require.Equal(t, []uint64{uint64(at.UnixNano()), uint64(at.Add(time.Minute).UnixNano())}, []uint64{wait.StartTimeUnixNano, wait.EndTimeUnixNano})
	require.Equal(t, update.StartTimeUnixNano, update.EndTimeUnixNano, "a clock that was set back")
	require.Equal(t, otlp.Span_SPAN_KIND_SERVER, update.Kind)
	require.Equal(t, "NodeFailed", update.Status.Message)
	require.NotEqual(t, tracing.Trace("a", "bc"), tracing.Trace("ab", "c"))
}

func TestSamplingIsByTheTrace(t *testing.T) {
	r := tracingtest.NewReceiver(t)
	for range 2 {
		tracer, err := tracing.New(t.Context(), tracing.Options{Endpoint: r.Endpoint, Insecure: true, Ratio: 0.5})
		require.NoError(t, err)
		for i := range 100 {
			of := tracing.Trace(string(rune('a' + i)))
			tracer.Record(tracing.Span{ID: of.Of("x"), Parent: of.Of("update").Span, Name: "x", Start: at, End: at})
		}
		require.NoError(t, tracer.Shutdown(t.Context()))
	}
	count := map[string]int{}
	for _, s := range r.Spans() {
		count[string(s.TraceId)]++
	}
	require.Greater(t, len(count), 25)
	require.Less(t, len(count), 75)
	for _, n := range count {
		require.Equal(t, 2, n, "both processes decide the same")
	}
}

func TestNothingIsExportedWithoutAnEndpoint(t *testing.T) {
	tracer, err := tracing.New(t.Context(), tracing.Options{Ratio: 1})
	require.NoError(t, err)
	require.Nil(t, tracer)
	require.False(t, tracer.On())
	require.NoError(t, tracer.Shutdown(t.Context()))
	span := tracing.Span{Name: "x"}
	require.Zero(t, testing.AllocsPerRun(100, func() { tracer.Record(span) }))
}

func TestAPartOfTheTraces(t *testing.T) {
	for _, ratio := range []float64{-0.1, 1.1, math.NaN()} {
		require.ErrorContains(t, tracing.Options{Ratio: ratio}.Validate(), "from 0 to 1")
	}
	require.NoError(t, tracing.Options{Ratio: 0}.Validate())
}
