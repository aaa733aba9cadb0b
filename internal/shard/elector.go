package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Lost, if not nil, is called when a Lease is lost, and others go on with what this process may still do. It is to end the process soon, come what
	// may.
	Lost func(why error)
	// Drain is how long work on a shard may take to end that is to be released.
	Drain time.Duration

	mu       sync.Mutex
	electing map[int]*election // by shard
	// undivided tells that this replica is not among those who divide the fleet any more.
	undivided bool
	leaving   sync.WaitGroup // for those who release shards
	ended     chan error     // why this replica has to end
	sights    sync.Mutex
	seen      map[string]sight  // by the name of the Lease
	free      map[int]time.Time // since when nobody holds a shard
}

func shardName(shard, count int) string { return fmt.Sprintf("refit-shard-%d-of-%d", shard, count) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *Elector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (e *Elector) Start(ctx context.Context) error {
	e.electing, e.free, e.ended = map[int]*election{}, map[int]time.Time{}, make(chan error, e.Shards.Count+2)
	if _, err := e.Client.CoordinationV1().Leases(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: divisionLabel, Limit: 1}); err != nil {
		return fmt.Errorf("list Leases in namespace %s, which replicas that share a fleet have to: %w", e.Namespace, err)
	}
	dividing := make(chan struct{}) // closed when the work on the shards has ended, and not with ctx
	divides, err := e.divide(ctx, dividing)
	if err != nil {
		return err
	}
	select {
	case <-divides:
		err = e.share(ctx)
	case err = <-e.ended:
	case <-ctx.Done():
	}
	if err == nil { // else there may be work under way that does not end
		close(dividing)
	}
	return err
}

// share has this replica have its share, until ctx ends.
func (e *Elector) share(ctx context.Context) error {
	leases, stop := e.watch(ctx)
	defer stop()
	attends, leave := e.attend(ctx)
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

// divide has this replica be among those that divide the fleet as it does, until the channel is closed. That which it returns is closed when it is.
func (e *Elector) divide(ctx context.Context, until <-chan struct{}) (<-chan struct{}, error) {
	divides := make(chan struct{})
	lose := sync.OnceFunc(func() {
		e.loseAll()
		e.end(fmt.Errorf("lost Lease %s, which all replicas with --shards=%d have together: this one ends", LeaderLease, e.Shards.Count))
	})
	lock := &guard{Interface: newDivision(e.Client.CoordinationV1(), e.Namespace, e.Shards.Count), lost: func(error) { lose() }}
	// It is not released, since others may have it.
	elector, err := e.elector(lock, "refit", func() { close(divides) })
	if err != nil {
		return nil, err
	}
	go func() {
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go func() {
			select {
			case <-until:
				stop()
			case <-running.Done():
			}
		}()
		elector.Run(running)
		if running.Err() == nil {
			lose()
		}
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
	if long := e.abandoned(holders); len(p.acquire) == 0 {
		p.acquire = long
	}
	e.withdraw(p.acquire, holders)
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
func (e *Elector) withdraw(wanted []int, holders []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, el := range e.electing {
		if !el.leads && !el.leaves && !slices.Contains(wanted, shard) && holders[shard] != e.Identity {
			el.leaves = true
			el.stop()
		}
	}
}

// end has the process end after a loss.
func (e *Elector) end(why error) {
	if e.Lost != nil {
		e.Lost(why)
	}
	e.ended <- why
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

// loseAll tells all work to end, and has none begin.
func (e *Elector) loseAll() {
	e.mu.Lock()
	e.undivided = true
	e.mu.Unlock()
	for shard := range e.Shards.Count {
		e.Shards.end(shard)
	}
}
