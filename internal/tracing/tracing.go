package tracing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	ctrl "sigs.k8s.io/controller-runtime"
)

// batchEvery is how long a span waits at most for others, with which it is exported. Those that wait are lost with a process that is killed.
const batchEvery = time.Second

// Options say where spans go.
type Options struct {
	// Endpoint is the host and port of an OTLP receiver that speaks gRPC.
	Endpoint string
	// Insecure reports that it is reached without TLS.
	Insecure bool
	// Ratio is the part of the traces that is exported, from 0 to 1. Every process decides the same of a trace.
	Ratio float64
	// Version is that of the program, and Instance the name of the process.
	Version, Instance string
}

// endpoint is a host's name, an IPv4 address, or an IPv6 address in brackets, and a port. The chart's values.schema.json has the same.
const endpoint = `([A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\])` +
	`:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`

var isEndpoint = regexp.MustCompile(`^` + endpoint + `$`)

// ValidateEndpoint returns what is wrong with an endpoint. No endpoint is right, too.
func ValidateEndpoint(text string) error {
	if text == "" {
		return nil
	}
	wrong := !isEndpoint.MatchString(text)
	if strings.HasPrefix(text, "[") {
		_, err := netip.ParseAddrPort(text)
		wrong = wrong || err != nil
	}
	if wrong {
		return fmt.Errorf("%q is no host and port, such as otel-collector.observability:4317", text)
	}
	return nil
}

// Validate returns what is wrong with the options.
func (o Options) Validate() error {
	if err := ValidateEndpoint(o.Endpoint); err != nil {
		return fmt.Errorf("the endpoint: %w", err)
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) { // it may be NaN
		return fmt.Errorf("the part of the traces is %v, and can be from 0 to 1", o.Ratio)
	}
	return nil
}

// Tracer exports spans. A nil Tracer exports nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracer, nil if there is no endpoint. It connects when there is something to export, and goes on without while nobody answers.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Endpoint == "" {
		return nil, nil //nolint:nilnil // a nil Tracer exports nothing
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	to := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(o.Endpoint)}
	if o.Insecure {
		to = append(to, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, to...)
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", o.Endpoint, err)
	}
	what, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "refit"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance),
	))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe this process to who receives traces: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		ctrl.Log.WithName("tracing").Info("Could not export traces", "reason", err.Error())
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(batchEvery)),
		sdktrace.WithResource(what), sdktrace.WithIDGenerator(given{}), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(o.Ratio)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/capi-refit/refit")}, nil
}

// Shutdown exports what is left.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// On reports whether spans are exported, so that none need be made otherwise.
func (t *Tracer) On() bool { return t != nil }

// ID identifies a span, and its trace.
type ID struct {
	Trace trace.TraceID
	Span  trace.SpanID
}

// Trace returns the ID of the trace that is about something. Its span is that of nothing.
func Trace(about ...string) ID {
	sum := digest(about)
	return ID{Trace: trace.TraceID(sum[:16])}
}

// Of returns the ID of a span of the same trace, by what tells it from the others.
func (id ID) Of(about ...string) ID {
	sum := digest(about)
	id.Span = trace.SpanID(sum[:8])
	return id
}

func digest(about []string) [sha256.Size]byte {
	h := sha256.New()
	for _, s := range about {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Span is work that has ended.
type Span struct {
	ID ID
	// Parent is a span of the same trace; zero if there is none.
	Parent trace.SpanID
	Name   string
	// Serves reports that it answers somebody else's request.
	Serves     bool
	Start, End time.Time
	// Failed says in a word why it has failed; empty if it has not.
	Failed     string
	Attributes []attribute.KeyValue
}

// Record exports spans.
func (t *Tracer) Record(spans ...Span) {
	if t == nil {
		return
	}
	for _, s := range spans {
		t.record(s)
	}
}

func (t *Tracer) record(s Span) {
	kind := trace.SpanKindInternal
	if s.Serves {
		kind = trace.SpanKindServer
	}
	end := s.End
	if end.Before(s.Start) { // clocks are set
		end = s.Start
	}
	ctx := context.WithValue(context.Background(), idKey{}, s.ID)
	if s.Parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: s.ID.Trace, SpanID: s.Parent, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	_, span := t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(s.Attributes...))
	if s.Failed != "" {
		span.SetStatus(codes.Error, s.Failed)
	}
	span.End(trace.WithTimestamp(end))
}

type idKey struct{}

// given gives a span the ID that it is to have.
type given struct{}

// NewIDs implements sdktrace.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := ctx.Value(idKey{}).(ID)
	return id.Trace, id.Span
}

// NewSpanID implements sdktrace.IDGenerator.
func (g given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := g.NewIDs(ctx)
	return span
}
