package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

// recordedDir holds requests that real managers sent.
const recordedDir = "handlers/testdata"

func recorded(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(recordedDir, name+".json"))
}

// benchEngine measures the engine alone, without HTTP.
func benchEngine(out io.Writer) error {
	allowed, err := disruption.AllowPaths([]string{"/etc/demo.conf"})
	if err != nil {
		return err
	}
	reg, err := updaters.NewRegistry(files.New(disruption.Rules{Files: append(disruption.Builtin(), allowed...)}))
	if err != nil {
		return err
	}
	h := handlers.NewCanUpdate(handlers.NewEngine(inplace.Always(reg)), handlers.NoPolicies{}, handlers.NewMetrics(prometheus.NewRegistry()), "")
	say(out, "== The engine alone, for each request")
	for _, c := range []struct {
		name   string
		handle func(context.Context, []byte) runtimehooksv1.ResponseObject
	}{
		{"canupdatemachine-file-content", h.Machine}, {"canupdatemachine-mixed", h.Machine},
		{"canupdatemachineset-file-removed", h.MachineSet}, {"canupdatemachineset-files-ntp-users", h.MachineSet},
	} {
		body, err := recorded(c.name)
		if err != nil {
			return fmt.Errorf("%w; run it with `make bench`", err)
		}
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c.handle(b.Context(), body).GetStatus() != runtimehooksv1.ResponseStatusSuccess {
					b.Fatal("the engine could not judge a recorded request")
				}
			}
		})
		if r.N == 0 {
			return fmt.Errorf("the engine could not judge %s", c.name)
		}
		say(out, "   %-38s %7.1f µs  %6d B  %5d allocations", c.name, float64(r.NsPerOp())/1000, r.AllocedBytesPerOp(), r.AllocsPerOp())
	}
	return nil
}
