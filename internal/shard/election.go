package shard

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// election is a shard that this replica holds or tries to acquire.
type election struct {
	lock  resourcelock.Interface
	stop  context.CancelFunc
	over  chan struct{}
	leads bool
	// leaves tells that it is given up, and that it ends is no loss.
	leaves, lost bool
}

// elect begins an election for a shard, if none is under way.
func (e *Elector) elect(ctx context.Context, shard int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.electing[shard] != nil {
		return nil
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	el := &election{over: make(chan struct{}), stop: stop}
	name := shardName(shard, e.Shards.Count)
	el.lock = &guard{
		Interface: e.lockOf(shard), lost: func(why error) { e.lose(shard, el, why) },
		expired: func(r *resourcelock.LeaderElectionRecord) bool { return e.expired(name, r) },
	}
	elector, err := e.elector(el.lock, name, func() { e.won(ctx, shard, el) })
	if err != nil {
		stop()
		return err
	}
	e.electing[shard] = el
	go func() {
		defer stop()
		defer close(el.over)
		elector.Run(running)
		// One that is ended between two renewals leaves leader_election_master_status as it was. A new one, which is never run, says that nobody leads.
		_, _ = e.elector(el.lock, name, func() {})
		e.over(running, shard, el)
	}()
	return nil
}

// won has the work on a shard begin, unless it was given up meanwhile.
func (e *Elector) won(ctx context.Context, shard int, el *election) {
	e.mu.Lock()
	el.leads = e.may(el)
	e.mu.Unlock()
	if !el.leads {
		return
	}
	// What is known of the shard may take a while to be forgotten, and its Lease may be lost meanwhile.
	ctrl.LoggerFrom(ctx).Info("Acquired a shard", "shard", shard, "of", e.Shards.Count)
	e.Shards.acquire(shard, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.may(el)
	})
}

// may reports whether the shard of an election that was won may be worked on.
func (e *Elector) may(el *election) bool { return !el.leaves && !el.lost && !e.undivided }

// over ends an election. One that was not ended has lost its Lease, though the shard is being released.
func (e *Elector) over(running context.Context, shard int, el *election) {
	if running.Err() == nil {
		e.lose(shard, el, errors.New("it was not renewed in time"))
		return
	}
	if err := release(el.lock); err != nil {
		ctrl.Log.WithName("shards").Error(err, "Could not release the Lease of a shard, which ends by itself", "shard", shard)
	}
	// Not before is there another election for it, whose Lease would be taken for this one's.
	e.mu.Lock()
	delete(e.electing, shard)
	e.mu.Unlock()
}

// lose tells the work on a shard to end whose Lease is lost, and this replica.
func (e *Elector) lose(shard int, el *election, why error) {
	e.mu.Lock()
	already := el.lost
	el.lost = true
	e.mu.Unlock()
	if already {
		return
	}
	e.Shards.end(shard)
	e.end(fmt.Errorf("lost the Lease of shard %d: %w; this replica ends, so that others go on", shard, why))
}
