package server

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/machineupdate"
)

// driftFlags say how often the server compares nodes with what was applied to them.
type driftFlags struct{ interval time.Duration }

// leastDriftInterval keeps refit from doing nothing but that.
const leastDriftInterval = time.Minute

func (f *driftFlags) add(fs *pflag.FlagSet) {
	fs.DurationVar(&f.interval, "drift-interval", time.Hour, "How often each node of a machine that is up to date is compared with what was applied to it. 0: only when a person asks, with refit drift --now.")
}

// addTo has the manager compare nodes.
func (f *driftFlags) addTo(mgr ctrl.Manager, r *machineupdate.Reconciler) error {
	if f.interval != 0 && f.interval < leastDriftInterval {
		return fmt.Errorf("--drift-interval is %s and can be 0, or %s and more", f.interval, leastDriftInterval)
	}
	checker := &drift.Checker{
		Client: r.Client, Live: r.Live, Clock: r.Clock, Nodes: r, Interval: f.interval, Began: r.Clock.Now(), Metrics: drift.NewMetrics(metrics.Registry),
	}
	if err := checker.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add the comparison of nodes: %w", err)
	}
	return nil
}
