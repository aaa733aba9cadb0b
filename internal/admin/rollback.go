package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// rollbackEvery is how often it is looked what has become of a rollback.
const rollbackEvery = time.Second

// Rollback lets people have a Machine that is being updated brought to what its owner wants now.
type Rollback struct {
	Client client.Client
	Clock  clock.Clock
	Out    io.Writer
	// Admin is who asks.
	Admin string
	// Timeout is how long to wait for refit to write it, or to refuse. 0: not at all.
	Timeout time.Duration
}

// Ask asks refit to write what the owner of a Machine wants now, and returns an error if refit refuses.
func (r *Rollback) Ask(ctx context.Context, m *clusterv1.Machine) error {
	var asked *refitv1.MachineUpdate
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) { // refit writes the status at the same time
		asked, err = r.ask(ctx, m)
		return err
	})
	if err != nil {
		return err
	}
	return r.await(ctx, m, asked.RollbackRequest())
}

func (r *Rollback) ask(ctx context.Context, m *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	mu, err := updateOf(ctx, r.Client, m)
	if err != nil {
		return nil, err
	}
	if row := rowOf(mu, r.Clock.Now()); row.Phase == string(refitv1.PhaseSucceeded) {
		return nil, fmt.Errorf("the update of Machine %s/%s has succeeded, so that Cluster API hears its owner again: put the template back, "+
			"and Cluster API asks for what is in it", m.Namespace, m.Name)
	}
	return ask(ctx, r.Client, mu, r.Admin, r.Clock.Now(), refitv1.RollbackAnnotation, refitv1.RetryAnnotation, refitv1.AbandonAnnotation)
}

// await waits until refit has written what is wanted, or has refused.
func (r *Rollback) await(ctx context.Context, m *clusterv1.Machine, request string) error {
	why := ""
	for began := r.Clock.Now(); r.Clock.Since(began) < r.Timeout; {
		mu, err := updateOf(ctx, r.Client, m)
		if err != nil {
			return err
		}
		s := mu.Status.Rollback
		if s != nil && s.Request == request {
			why = ": " + oneLine(s.Message)
		}
		if s != nil && s.Request == request && s.State.Ended() {
			if s.State == refitv1.RollbackRefused {
				return errors.New(oneLine(s.Message))
			}
			return r.say("%[3]s.\nrefit brings it to the node, and waits for window, slot and lease as for any update. See how it goes with: refit status -n %[1]s %[2]s --watch\n",
				m.Namespace, m.Name, s.Message)
		}
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
	if r.Timeout > 0 {
		return fmt.Errorf("refit has not acted on it within %s%s; it does when what runs on the node has ended, the Cluster is not paused, and refit runs: "+
			"see .status.rollback of MachineUpdate %s/%s", r.Timeout, why, m.Namespace, m.Name)
	}
	return r.say("refit was asked to write what the owner of Machine %[1]s/%[2]s wants now. Whether it has, .status.rollback of MachineUpdate %[1]s/%[2]s shows.\n", m.Namespace, m.Name)
}

func (r *Rollback) say(format string, args ...any) error {
	return say(r.Out, format, args...)
}

func (r *Rollback) sleep(ctx context.Context) error {
	timer := r.Clock.NewTimer(rollbackEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for refit to write what the owner wants: %w", ctx.Err())
	case <-timer.C():
		return nil
	}
}
