package server

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/tracing"
)

// exportWithin is how long the spans that are left may take at the end.
const exportWithin = 5 * time.Second

// tracingFlags say where traces of updates go.
type tracingFlags struct {
	endpoint string
	insecure bool
	ratio    float64
	// tracer is there once it is started; nil if no traces are exported.
	tracer *tracing.Tracer
}

func (f *tracingFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.endpoint, "tracing-endpoint", "", "Host and port of an OpenTelemetry collector to which traces of updates are exported, by OTLP over gRPC: docs/observability.md. Unset: none are.")
	fs.Float64Var(&f.ratio, "tracing-sampling-ratio", 1, "Which part of the traces is exported, from 0 to 1. The same for all replicas, which then decide the same of a trace.")
	fs.BoolVar(&f.insecure, "tracing-insecure", false, "Export traces without TLS.")
}

// start has traces be exported, if they are to be. At the end shutdown exports what is left.
func (f *tracingFlags) start(ctx context.Context, version, instance string) (shutdown func(), err error) {
	if err := tracing.ValidateEndpoint(f.endpoint); err != nil {
		return nil, fmt.Errorf("--tracing-endpoint: %w", err)
	}
	o := tracing.Options{Endpoint: f.endpoint, Insecure: f.insecure, Ratio: f.ratio, Version: version, Instance: instance}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("--tracing-sampling-ratio: %w", err)
	}
	if f.tracer, err = tracing.New(ctx, o); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportWithin)
		defer cancel()
		if err := f.tracer.Shutdown(ctx); err != nil {
			ctrl.Log.WithName("tracing").Info("Could not export the last traces", "reason", err.Error())
		}
	}, nil
}
