package machineupdate

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

const (
	// rounds is how many Clusters' updates are recorded at once, and recorders how many updates, of all of them.
	rounds    = 20
	recorders = 20
	// recordTimeout is how long the requests for one may take.
	recordTimeout = 30 * time.Second
	// recordTries is how often one is tried again that could not be recorded, which takes a second. Cluster API asks again anyway.
	recordTries = 8
	// knownFor is for how long it is known how the last try has ended. After that caches know.
	knownFor = 5 * time.Second
	// recordedEach is what those who wait are told to expect of the queue: so many are recorded in a second.
	recordedEach = 300
	// begunWithin is for how long an update that was recorded counts as one that is about to begin, if no cache shows that it has: it may be gone.
	begunWithin = time.Minute
)

// Recorder records beside the hook what Cluster API asks for, so that a fleet that asks for all at once is answered at once. The hook says that an
// update is recorded when it is, and not before. See docs/adr/0044-recorded-beside-the-hook.md.
type Recorder struct {
	store *Store
	asks  *asks
	lists *lists
	// begins are the Machines whose updates this process has recorded, and which have not begun as far as caches show.
	begins beginnings
	// known is how the last try for a Machine has ended, as *tried by its key.
	known *lru.Cache
	// turns are had by who makes the requests for an update.
	turns chan struct{}
}

// tried is how a try to record an update has ended.
type tried struct {
	outcome
	digest string
	at     time.Time
}

// outcome is the answer to who asks for an update, and what was found out.
type outcome struct {
	progress inplace.Progress
	// recorded reports that the API server has the MachineUpdate of a Machine with a UID, for the digest that was asked for, since just now.
	recorded bool
	machine  types.UID
	// seen is the resourceVersion that the cache had of the MachineUpdate before, empty if it had none.
	seen string
	// made is the MachineUpdate as it was recorded; nil if it was not.
	made *refitv1.MachineUpdate
}

// NewRecorder returns what records the updates that a Store is asked for, which then does not do so itself. The manager runs it.
func NewRecorder(s *Store) *Recorder {
	s.recorder = &Recorder{store: s, asks: newAsks(), lists: newLists(s), known: lru.New(maxJudged), turns: make(chan struct{}, recorders)}
	return s.recorder
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers hooks.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start records until ctx ends. What was not recorded by then Cluster API asks for again.
func (r *Recorder) Start(ctx context.Context) error {
	var workers sync.WaitGroup
	for range rounds {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.asks.clusters.ShutDown()
	workers.Wait()
	return nil
}

// ask has an update be recorded, and answers how that stands. The MachineUpdate and the Machine are as caches have them.
func (r *Recorder) ask(mu *refitv1.MachineUpdate, machine *clusterv1.Machine, digest string) inplace.Progress {
	key := client.ObjectKeyFromObject(machine)
	if last := r.answered(key, mu, machine.UID, digest); last != nil {
		return r.later(last.progress)
	}
	if r.store.specs.refuses(key, digest) {
		return *otherSpecs()
	}
	queued, failed, ok := r.asks.add(machine, digest, r.store.Clock.Now())
	switch {
	case !ok:
		return inplace.Progress{
			Message: "more updates are asked for than can be recorded now, and this one is not yet; refit waits to be asked again", RetryAfter: retryWaiting,
		}
	case failed:
		p := r.later(recording(queued))
		p.Message = "the update could not be recorded in the management cluster yet, and refit tries again; its log says why"
		return p
	default:
		return r.later(recording(queued))
	}
}

// later has who asks about an update that has not begun ask later the more of them there are: the answers would be what delays them.
func (r *Recorder) later(p inplace.Progress) inplace.Progress {
	p.RetryAfter = recording(r.asks.number() + r.begins.number(r.store.Clock.Now())).RetryAfter
	return p
}

// shown is the answer about an update that is recorded, as a cache shows it.
func (r *Recorder) shown(mu *refitv1.MachineUpdate, p inplace.Progress) inplace.Progress {
	if r == nil {
		return p
	}
	key := client.ObjectKeyFromObject(mu)
	r.known.Remove(key) // the cache tells from now on
	if mu.Status.ObservedDigest != mu.Spec.Digest {
		return r.later(p)
	}
	r.begins.remove(key)
	return p
}

// answered returns what was found out a moment ago about the same question; nil if there is nothing, or the cache has seen something since.
func (r *Recorder) answered(key types.NamespacedName, mu *refitv1.MachineUpdate, machine types.UID, digest string) *tried {
	value, ok := r.known.Get(key)
	if !ok {
		return nil
	}
	last := value.(*tried)
	age := r.store.Clock.Since(last.at)
	if last.digest != digest || last.machine != machine || last.seen != versionOf(mu) || age < 0 || age >= knownFor {
		return nil
	}
	return last
}

func versionOf(mu *refitv1.MachineUpdate) string {
	if mu == nil {
		return ""
	}
	return mu.ResourceVersion
}

// recording answers who asks for an update that is not recorded yet, with so many that are to be.
func recording(queued int) inplace.Progress {
	after := retrySoon + time.Duration(queued/recordedEach)*time.Second
	return inplace.Progress{Message: "the update is being recorded", RetryAfter: min(after, retryWaitingAtMost)}
}

// next records what the Machines of one Cluster are asked for. It returns false when there is nothing more to come.
func (r *Recorder) next(ctx context.Context) bool {
	cluster, shutdown := r.asks.clusters.Get()
	if shutdown {
		return false
	}
	defer r.asks.clusters.Done(cluster)
	if ctx.Err() != nil {
		return true
	}
	round := r.take(ctx, cluster)
	defer r.lists.judge(ctx, cluster, round)()
	var all sync.WaitGroup
	for _, of := range round {
		select {
		case r.turns <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return true
		}
		all.Go(func() {
			defer func() { <-r.turns }()
			r.recordAll(ctx, of)
		})
	}
	all.Wait()
	return true
}

// candidate is a Machine of which updates are to be recorded, in one round.
type candidate struct {
	key     types.NamespacedName
	mu      *refitv1.MachineUpdate // as the cache has it; nil if it has none
	machine *clusterv1.Machine     // as the cache has it; nil if it went, or could not be read
	err     error                  // why not
	asks    []*want
}

// want is one update that is to be recorded.
type want struct {
	digest string
	// machine is as it was when all of its Cluster were read, or refused why the update is not recorded then. Neither: it is read by itself.
	machine *clusterv1.Machine
	refused *inplace.Progress
	at      time.Time // when reading began
}

// take takes what Machines of a Cluster are asked for, with what the cache has of them: that is older than what is read live then, so that a write of
// whoever knows something newer makes that of this process a conflict.
func (r *Recorder) take(ctx context.Context, cluster types.NamespacedName) []*candidate {
	taken := r.asks.take(cluster)
	round := make([]*candidate, 0, len(taken))
	for _, ask := range taken {
		c := &candidate{key: ask.key}
		for _, digest := range ask.digests {
			c.asks = append(c.asks, &want{digest: digest})
		}
		c.mu, c.machine, c.err = r.store.read(ctx, c.key)
		round = append(round, c)
	}
	return round
}

// recordAll records what one Machine is asked for.
func (r *Recorder) recordAll(ctx context.Context, c *candidate) {
	for _, w := range c.asks {
		if !w.at.IsZero() && r.lists.tooOld(w.at) {
			r.asks.again(c.key) // in another round
			return
		}
		if err := r.record(ctx, c, w); err != nil && r.asks.retry(c.key) {
			ctrl.LoggerFrom(ctx).Info("An update could not be recorded, and is tried again", "machine", c.key, "reason", err.Error())
			return
		}
		r.asks.forget(c.key, w.digest)
	}
}

// record records one update, and how that has ended.
func (r *Recorder) record(ctx context.Context, c *candidate, w *want) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	o, err := r.store.record(ctx, c, w)
	if err == nil && o.recorded {
		r.store.traceHook(o.made, r.asks.since(c.key))
		o.made = nil
		r.begins.add(c.key, r.store.Clock.Now())
		r.known.Add(c.key, &tried{o, w.digest, r.store.Clock.Now()})
	}
	return err
}

// record does what Cluster API asks for, by what caches and the API server say now.
func (s *Store) record(ctx context.Context, c *candidate, w *want) (o outcome, err error) {
	switch {
	case apierrors.IsNotFound(c.err):
		return outcome{progress: *notAsked()}, nil // it went while this waited
	case c.err != nil:
		return outcome{}, c.err
	case w.refused != nil:
		return outcome{progress: *w.refused}, nil
	case w.machine != nil:
		o, err = s.write(ctx, c.mu, w.machine, w.digest)
	default:
		o, err = s.settle(ctx, c.mu, c.machine, w.digest)
	}
	o.seen = versionOf(c.mu)
	return o, err
}

// read returns the MachineUpdate of a name, nil if there is none, and the Machine, as caches have them.
func (s *Store) read(ctx context.Context, key types.NamespacedName) (*refitv1.MachineUpdate, *clusterv1.Machine, error) {
	mu, machine := &refitv1.MachineUpdate{}, &clusterv1.Machine{}
	switch err := s.Client.Get(ctx, key, mu); {
	case apierrors.IsNotFound(err):
		mu = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read MachineUpdate %s: %w", key, err)
	}
	if err := s.Client.Get(ctx, key, machine); err != nil {
		return nil, nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	if mu != nil {
		mu = mu.Restored()
	}
	return mu, machine, nil
}
