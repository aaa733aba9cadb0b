package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capi-refit/refit/internal/shard"
)

// registerProcess registers what each replica shows of itself.
func registerProcess(r prometheus.Registerer, version string, mgr shard.Manager) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "refit_build_info", Help: "1, with the version of refit that runs, and of Go that it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "refit_shards", Help: "Into how many parts the namespaces are divided, each with a leader: --shards.",
		}, func() float64 {
			_, all := mgr.Held()
			return float64(all)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "refit_shards_held", Help: "How many of the parts this replica leads.",
		}, func() float64 {
			held, _ := mgr.Held()
			return float64(held)
		}))
}
