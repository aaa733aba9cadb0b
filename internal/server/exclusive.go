package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/holds"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/workload"
)

// exclusiveFlags say how refit has nodes to itself.
type exclusiveFlags struct {
	leaseNamespace string
	workers        string
	failureDomain  string
	rebootTimeout  time.Duration
	audit          auditFlags
}

func (f *exclusiveFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.leaseNamespace, "lease-namespace", lease.DefaultNamespace, "Namespace of the node leases in workload clusters. Others than medik8s' share no lease with medik8s.")
	fs.StringVar(&f.workers, "max-unavailable-workers", slots.DefaultWorkers, "How many workers of a cluster may be out at once, those included that others hold or that are not ready: a number, or a percentage (at least 1). Of a control plane it is 1.")
	fs.StringVar(&f.failureDomain, "max-unavailable-per-failure-domain", "", "How many machines of one failure domain of a cluster may be out at once: a number or a percentage. Unset: not limited.")
	fs.DurationVar(&f.rebootTimeout, "reboot-timeout", 20*time.Minute, "How long a node may take to come back from a reboot. Then its update has failed.")
	f.audit.add(fs)
}

// addTo gives the Reconciler what it takes to have nodes to itself.
func (f *exclusiveFlags) addTo(ctx context.Context, mgr shard.Manager, r *machineupdate.Reconciler, userAgent string, stop func(why string)) error {
	limits, err := slots.ParseLimits(f.workers, f.failureDomain)
	if err != nil {
		return err
	}
	if r.Workloads, err = workload.Setup(ctx, mgr, userAgent, r.WatchSecrets, clock.RealClock{}); err != nil {
		return fmt.Errorf("reach workload clusters: %w", err)
	}
	r.Slots = &slots.Slots{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Limits: limits, Clock: clock.RealClock{}}
	r.Observer = lease.NewObserver(lease.DefaultObserved)
	r.LeaseNamespace, r.RebootTimeout = f.leaseNamespace, f.rebootTimeout
	if err := f.addHolds(mgr, r.Workloads); err != nil {
		return fmt.Errorf("look after holds: %w", err)
	}
	log, err := f.audit.open(ctx, mgr, r.Instance)
	if err != nil {
		return err
	}
	if log != nil {
		r.Dialer, r.Audit = &audit.Dialer{Dialer: r.Dialer, Log: log}, log
	}
	// The Deployment tells the container which pod it is in.
	r.Self = types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
	r.HandOver = handOver(time.Now(), stop)
	return nil
}

// addHolds has the manager look after people's holds.
func (f *exclusiveFlags) addHolds(mgr ctrl.Manager, workloads holds.Workloads) error {
	sweeper := &holds.Sweeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Workloads: workloads, LeaseNamespace: f.leaseNamespace, Clock: clock.RealClock{}}
	notes := &holds.Notes{Client: mgr.GetClient(), Workloads: workloads, LeaseNamespace: f.leaseNamespace, Clock: clock.RealClock{}}
	return errors.Join(sweeper.SetupWithManager(mgr), notes.SetupWithManager(mgr))
}

// handOverAfter is how long a process runs before it hands over: one that was started again on the same node, because there is
// no other, must not do so again and again.
const handOverAfter = 10 * time.Minute

func handOver(began time.Time, stop func(string)) func(string) {
	return func(why string) {
		if time.Since(began) > handOverAfter {
			stop(why)
		}
	}
}
