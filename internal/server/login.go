package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-refit/refit/internal/loginprobe"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/shard"
)

// loginFlags say how often the server tries whether nodes can be reached.
type loginFlags struct{ interval time.Duration }

// leastLoginInterval keeps refit from doing nothing but that.
const leastLoginInterval = time.Minute

func (f *loginFlags) add(fs *pflag.FlagSet) {
	fs.DurationVar(&f.interval, "login-interval", time.Hour, "How often refit logs in to each node that no update and no comparison has reached meanwhile, to show in the status of its NodeAccess whether it can. 0: never.")
}

// addTo has the manager try whether nodes can be reached.
func (f *loginFlags) addTo(ctx context.Context, mgr shard.Manager, r *machineupdate.Reconciler) error {
	if f.interval != 0 && f.interval < leastLoginInterval {
		return fmt.Errorf("--login-interval is %s and can be 0, or %s and more", f.interval, leastLoginInterval)
	}
	prober := &loginprobe.Prober{Client: r.Client, Clock: r.Clock, Nodes: r, Interval: f.interval, Metrics: loginprobe.NewMetrics(metrics.Registry)}
	if err := prober.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add what tries whether nodes can be reached: %w", err)
	}
	status := &loginprobe.Status{Client: r.Client, Informers: mgr.GetCache(), Prober: prober, Recorder: r.Recorder}
	if err := errors.Join(status.Watch(ctx, mgr.GetCache()), status.SetupWithManager(mgr)); err != nil {
		return fmt.Errorf("add the status of NodeAccesses: %w", err)
	}
	whenLeading(mgr, &loginprobe.Collector{Client: r.Client})
	return nil
}
