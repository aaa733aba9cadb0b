// Package tracingtest receives what package tracing exports.
package tracingtest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/capi-refit/refit/internal/tracing"
)

// Receiver is an OTLP receiver on loopback.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	// Endpoint is where it listens.
	Endpoint string

	mu    sync.Mutex
	spans []*otlp.Span
}

// T is a test.
type T interface {
	require.TestingT
	Cleanup(f func())
}

// NewReceiver starts a Receiver, which ends with the test.
func NewReceiver(t T) *Receiver {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &Receiver{Endpoint: listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is stopped
	}()
	t.Cleanup(func() { server.Stop(); <-ended })
	return r
}

// Export implements collector.TraceServiceServer.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range req.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns what was received, in that order.
func (r *Receiver) Spans() []*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*otlp.Span(nil), r.spans...)
}

// NewTracer returns a Tracer of a process that exports all to the Receiver, and a function with which it ends in good order.
func (r *Receiver) NewTracer(t T, instance string) (tracer *tracing.Tracer, shutdown func()) {
	tracer, err := tracing.New(context.Background(), tracing.Options{Endpoint: r.Endpoint, Insecure: true, Ratio: 1, Version: "test", Instance: instance})
	require.NoError(t, err)
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, tracer.Shutdown(ctx))
	}
}
