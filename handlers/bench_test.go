package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// BenchmarkCanUpdate answers what is asked again, what is asked about another machine with the same specs, and what differs each time.
func BenchmarkCanUpdate(b *testing.B) {
	for _, of := range []struct {
		name, request string
		names         []string
		ask           func(*CanUpdate, []byte) runtimehooksv1.ResponseObject
	}{
		{"Machine", "canupdatemachine-file-content", []string{"c1-fqxw2"}, func(h *CanUpdate, body []byte) runtimehooksv1.ResponseObject { return h.Machine(b.Context(), body) }},
		{"MachineSet", "canupdatemachineset-files-ntp-users", []string{"c1-md-f7cwk", "c1-md-tm6rq"}, func(h *CanUpdate, body []byte) runtimehooksv1.ResponseObject { return h.MachineSet(b.Context(), body) }},
	} {
		var compact bytes.Buffer
		require.NoError(b, json.Compact(&compact, recorded(b, of.request)))
		body := compact.Bytes()
		path := []byte(`"path":"/etc/demo.conf"`)
		for name, next := range map[string]func(i int) []byte{
			"again": func(int) []byte { return body },
			"fleet": func(i int) []byte { return named(body, i, of.names...) },
			"differ": func(i int) []byte {
				return bytes.Replace(named(body, i, of.names...), path, fmt.Appendf(nil, `"path":"/etc/demo.conf","owner":"o%d:o"`, i), 1)
			},
		} {
			b.Run(of.name+"/"+name, func(b *testing.B) {
				h := NewCanUpdate(NewEngine(&based{Updaters: engine(b, "/etc/demo.conf").updaters}), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
				bodies := make([][]byte, 1000)
				for i := range bodies {
					bodies[i] = next(i)
				}
				require.NotEmpty(b, of.ask(h, bodies[0]).GetMessage())
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					of.ask(h, bodies[i%len(bodies)])
					i++
				}
			})
		}
	}
}

// named returns a request about other objects with the same specs.
func named(body []byte, i int, names ...string) []byte {
	for n, name := range names {
		body = bytes.ReplaceAll(body, []byte(name), fmt.Appendf(nil, "m%d-%d", i, n))
	}
	return body
}
