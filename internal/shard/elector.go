package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Elector has this replica hold its part of the shards, each by a Lease of its own. Replicas know of each other by Leases, too, and each has as
// many shards as any other, or one more: who has two more releases one when the work on it has ended. A Lease that is lost ends the process, as
// that of a leader does.
type Elector struct {
	Shards *Shards
	Client kubernetes.Interface
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
	lost     chan int
	seen     map[string]sight // by the name of the Lease
}

// election is a shard that this replica holds or tries to acquire.
type election struct {
	lock   *Lock
	stop   context.CancelFunc
	ended  chan struct{}
	leads  bool
	leaves bool // it is given up, and that it ends is no loss
	began  time.Time
}

func shardName(shard, count int) string { return fmt.Sprintf("refit-shard-%d-of-%d", shard, count) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *Elector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (e *Elector) Start(ctx context.Context) error {
	e.electing, e.lost = map[int]*election{}, make(chan int, e.Shards.Count)
	factory := informers.NewSharedInformerFactoryWithOptions(e.Client, 0, informers.WithNamespace(e.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = divisionLabel }))
	lister := factory.Coordination().V1().Leases().Lister()
	watching, stop := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer stop()
	factory.StartWithContext(watching)
	factory.WaitForCacheSyncWithContext(ctx)
	tick := time.NewTicker(e.Retry)
	defer tick.Stop()
	var attended time.Time
	for {
		if time.Since(attended) >= e.Duration/3 {
			if err := e.attend(ctx); err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "Could not tell other replicas that this one is there")
			} else {
				attended = time.Now()
			}
		}
		if err := e.look(ctx, lister); err != nil {
			return errors.Join(err, e.leaveAll(), e.depart())
		}
		select {
		case <-tick.C:
		case shard := <-e.lost:
			why := fmt.Errorf("lost the Lease of shard %d: this replica ends, so that others go on", shard)
			return errors.Join(why, e.Shards.release(shard, e.Drain), e.leaveAll(), e.depart())
		case <-ctx.Done():
			return errors.Join(e.leaveAll(), e.depart())
		}
	}
}

// look acquires and releases what the replica's share takes.
func (e *Elector) look(ctx context.Context, lister coordinationlisters.LeaseLister) error {
	leases, err := lister.Leases(e.Namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Leases: %w", err)
	}
	if err := e.forget(ctx, leases); err != nil && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not delete the Leases of replicas that are gone")
	}
	holders, members := e.survey(leases)
	e.correct(holders)
	p := share(e.Identity, holders, members)
	e.withdraw(p.acquire)
	for _, shard := range p.acquire {
		if err := e.elect(ctx, shard); err != nil {
			return err
		}
	}
	if p.release >= 0 {
		ctrl.LoggerFrom(ctx).Info("Releasing a shard for another replica", "shard", p.release)
		return e.leave(p.release)
	}
	return nil
}

// correct has the shards that this replica holds, or does no longer, right: what it knows itself is newer than what it has been told.
func (e *Elector) correct(holders []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, holder := range holders {
		switch el := e.electing[shard]; {
		case el != nil && el.leads:
			holders[shard] = e.Identity
		case el == nil && holder == e.Identity:
			holders[shard] = ""
		}
	}
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
	// The end of ctx is not the election's: first the work on the shard has to end.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	el := &election{
		lock: NewLock(e.Client.CoordinationV1(), e.Namespace, e.Identity, shard, e.Shards.Count), stop: stop, ended: make(chan struct{}), began: time.Now(),
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: el.lock, LeaseDuration: e.Duration, RenewDeadline: e.Deadline, RetryPeriod: e.Retry, Name: shardName(shard, e.Shards.Count),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { e.won(ctx, shard, el) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		stop()
		return fmt.Errorf("elect who has shard %d: %w", shard, err)
	}
	e.electing[shard] = el
	go func() {
		defer close(el.ended)
		defer stop()
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
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	e.mu.Lock()
	delete(e.electing, shard)
	given := el.leaves
	e.mu.Unlock()
	if !given {
		e.lost <- shard
		return
	}
	if err := el.lock.Release(ctx); err != nil {
		ctrl.Log.WithName("shards").Error(err, "Could not release the Lease of a shard, which ends by itself", "shard", shard)
	}
}

// leave releases a shard, when the work on it has ended.
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
	if err := e.Shards.release(shard, e.Drain); err != nil {
		return err // the process ends, and the Lease only after its duration
	}
	el.stop()
	<-el.ended
	return nil
}

// leaveAll releases all shards.
func (e *Elector) leaveAll() error {
	e.withdraw(nil)
	e.mu.Lock()
	var all []int
	for shard := range e.electing {
		all = append(all, shard)
	}
	e.mu.Unlock()
	errs := make([]error, len(all))
	var leaving sync.WaitGroup
	for i, shard := range all {
		leaving.Go(func() { errs[i] = e.leave(shard) })
	}
	leaving.Wait()
	return errors.Join(errs...)
}
