package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Elector has this replica hold its part of the shards, each by a Lease of its own, as long as the fleet is divided into so many. Replicas know of each
// other by Leases, too, and each has as many shards as any other, or one more: who has two more tells the work on one to end, and
// releases it then. A Lease that is lost ends the work on its shard at once, and the process.
type Elector struct {
	Shards *Shards
	// Client writes Leases, and Watcher, which may have no timeout, watches them.
	Client, Watcher kubernetes.Interface
	// Namespace has the Leases.
	Namespace string
	// Identity is the name of this replica. No two have the same.
	Identity string
	// Duration is how long others wait before they take over, Deadline how long this replica tries to renew, and Retry how long it waits between two
	// tries.
	Duration, Deadline, Retry time.Duration
	// Drain is how long work on a shard may take to end that is to be released.
	Drain time.Duration

	mu       sync.Mutex
	electing map[int]*election // by shard
	leaving  sync.WaitGroup    // for those who release shards
	ended    chan error        // why this replica has to end
	seen     map[string]sight  // by the name of the Lease
	free     map[int]time.Time // since when nobody holds a shard
}

// election is a shard that this replica holds or tries to acquire.
type election struct {
	lock  resourcelock.Interface
	stop  context.CancelFunc
	over  chan struct{}
	leads bool
	// leaves tells that it is given up, and that it ends is no loss.
	leaves bool
	began  time.Time
}

func shardName(shard, count int) string { return fmt.Sprintf("refit-shard-%d-of-%d", shard, count) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *Elector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (e *Elector) Start(ctx context.Context) error {
	e.electing, e.free, e.ended = map[int]*election{}, map[int]time.Time{}, make(chan error, e.Shards.Count+2)
	dividing, stopDividing := context.WithCancel(context.WithoutCancel(ctx)) // first the work on the shards has to end
	defer stopDividing()
	divides, err := e.divide(dividing)
	if err != nil {
		return err
	}
	select {
	case <-divides:
	case err := <-e.ended:
		return err
	case <-ctx.Done():
		return nil
	}
	leases, stop := e.watch(ctx)
	defer stop()
	attends, leave := e.attend(ctx)
	defer leave()
	tick := time.NewTicker(e.Retry)
	defer tick.Stop()
	for {
		if attends() {
			if err := e.look(ctx, leases); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case err := <-e.ended:
			return err // the work on what is held ends with the process, and its Leases after their duration
		case <-ctx.Done():
			leave() // so that others don't leave what is free to this one
			return e.leaveAll()
		}
	}
}

// divide has this replica be among those that divide the fleet as it does. The channel is closed when it is.
func (e *Elector) divide(ctx context.Context) (<-chan struct{}, error) {
	divides := make(chan struct{})
	// It is not released, since others may have it.
	elector, err := e.elector(newDivision(e.Client.CoordinationV1(), e.Namespace, e.Shards.Count), "refit", func() { close(divides) })
	if err != nil {
		return nil, err
	}
	go func() {
		elector.Run(ctx)
		e.loseAll()
		e.ended <- fmt.Errorf("lost Lease %s, which all replicas with --shards=%d have together: this one ends", LeaderLease, e.Shards.Count)
	}()
	return divides, nil
}

// elector returns what holds a Lease, and calls won when it does.
func (e *Elector) elector(lock resourcelock.Interface, name string, won func()) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.Duration, RenewDeadline: e.Deadline, RetryPeriod: e.Retry, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { won() }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return nil, fmt.Errorf("elect who has %s: %w", name, err)
	}
	return elector, nil
}

// look acquires and releases what the replica's share takes.
func (e *Elector) look(ctx context.Context, leases *leases) error {
	all, err := leases.all()
	if err != nil {
		return err
	}
	holders, members := e.survey(all)
	busy := e.correct(holders)
	p := share(e.Identity, holders, members)
	if len(p.acquire) == 0 {
		p.acquire = e.abandoned(holders)
	}
	e.withdraw(p.acquire)
	for _, shard := range p.acquire {
		if err := e.elect(ctx, shard); err != nil {
			return err
		}
	}
	if p.release >= 0 && !busy {
		ctrl.LoggerFrom(ctx).Info("Releasing a shard for another replica", "shard", p.release)
		e.leaving.Go(func() {
			if err := e.leave(p.release); err != nil {
				e.ended <- err
			}
		})
	}
	return nil
}

// correct has the shards that this replica holds, or does no longer, right: what it knows itself is newer than what it has been told. It reports
// whether one is about to be released.
func (e *Elector) correct(holders []string) (busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, holder := range holders {
		switch el := e.electing[shard]; {
		case el != nil && el.leads:
			holders[shard] = e.Identity
			busy = busy || el.leaves
		case el == nil && holder == e.Identity:
			holders[shard] = ""
		}
	}
	return busy
}

// abandoned returns the shards that nobody has taken for so long that those who should, don't.
func (e *Elector) abandoned(holders []string) (long []int) {
	for shard, holder := range holders {
		since, known := e.free[shard]
		switch {
		case holder != "":
			delete(e.free, shard)
		case !known:
			e.free[shard] = time.Now()
		case time.Since(since) > 2*e.Duration:
			long = append(long, shard)
		}
	}
	return long
}

// withdraw ends elections for shards that another replica has, or is to have.
func (e *Elector) withdraw(wanted []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, el := range e.electing {
		// One that was wanted a moment ago may have been won, which is told soon.
		if !el.leads && !el.leaves && !slices.Contains(wanted, shard) && time.Since(el.began) > e.Retry {
			el.leaves = true
			el.stop()
		}
	}
}

// elect begins an election for a shard, if none is under way.
func (e *Elector) elect(ctx context.Context, shard int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.electing[shard] != nil {
		return nil
	}
	el := &election{lock: e.lockOf(shard), over: make(chan struct{}), began: time.Now()}
	elector, err := e.elector(el.lock, shardName(shard, e.Shards.Count), func() { e.won(ctx, shard, el) })
	if err != nil {
		return err
	}
	var running context.Context
	running, el.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.electing[shard] = el
	go func() {
		defer close(el.over)
		defer el.stop()
		elector.Run(running)
		e.over(shard, el)
	}()
	return nil
}

// won has the work on a shard begin, unless it was given up meanwhile.
func (e *Elector) won(ctx context.Context, shard int, el *election) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if el.leaves || e.electing[shard] != el {
		return
	}
	el.leads = true
	ctrl.LoggerFrom(ctx).Info("Acquired a shard", "shard", shard, "of", e.Shards.Count)
	e.Shards.acquire(shard)
}

// over ends an election. One that was not given up has lost its Lease.
func (e *Elector) over(shard int, el *election) {
	e.mu.Lock()
	given := el.leaves
	e.mu.Unlock()
	if !given {
		e.Shards.end(shard)
		e.ended <- fmt.Errorf("lost the Lease of shard %d: this replica ends, so that others go on", shard)
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

// leave releases a shard, when the work on it has ended. If that does not end the Lease is kept, until the process ends.
func (e *Elector) leave(shard int) error {
	e.mu.Lock()
	el := e.electing[shard]
	if el != nil {
		el.leaves = true
	}
	e.mu.Unlock()
	if el == nil {
		return nil
	}
	if err := e.Shards.end(shard)(e.Drain); err != nil {
		return err
	}
	el.stop()
	<-el.over
	return nil
}

// leaveAll releases all shards.
func (e *Elector) leaveAll() error {
	e.mu.Lock()
	var all []int
	for shard, el := range e.electing {
		if !el.leaves { // else it is being released
			all = append(all, shard)
		}
	}
	e.mu.Unlock()
	errs := make([]error, len(all))
	for i, shard := range all {
		e.leaving.Go(func() { errs[i] = e.leave(shard) })
	}
	e.leaving.Wait()
	return errors.Join(errs...)
}

// loseAll tells all work to end.
func (e *Elector) loseAll() {
	for shard := range e.Shards.Count {
		e.Shards.end(shard)
	}
}
