package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

const (
	// recorders is how many updates are recorded at once.
	recorders = 20
	// recordTimeout is how long the requests for one may take.
	recordTimeout = 30 * time.Second
	// maxAsks bounds the Machines whose updates are to be recorded, about 500 bytes each. One more is told to ask again.
	maxAsks = 100_000
	// maxDigests bounds what is asked for one of them at a time. Cluster API asks for one; others can reach the port of the hooks, too.
	maxDigests = 4
	// recordTries is how often one is tried again that could not be recorded, which takes a second. Cluster API asks again anyway.
	recordTries = 8
	// knownFor is for how long it is known how the last try has ended. After that caches know.
	knownFor = 5 * time.Second
	// recordedEach is what those who wait are told to expect of the queue: so many are recorded in a second.
	recordedEach = 300
)

// Recorder records beside the hook what Cluster API asks for, so that a fleet that asks for all at once is answered at once. The hook says that an
// update is recorded when it is, and not before. See docs/adr/0044-recorded-beside-the-hook.md.
type Recorder struct {
	store *Store
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// known is how the last try for a Machine has ended, as *tried by its key.
	known *lru.Cache

	mu   sync.Mutex
	asks map[types.NamespacedName]asks
}

// asks is what a Machine is asked to be updated to, and whether the last try to record that has failed.
type asks struct {
	digests []string
	failed  bool
	since   time.Time // of the first of them
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
	s.recorder = &Recorder{
		store: s, known: lru.New(maxJudged), asks: map[types.NamespacedName]asks{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](leastBackoff, mostBackoff),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "machineupdate-recorder"},
		),
	}
	return s.recorder
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers hooks.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start records until ctx ends. What was not recorded by then Cluster API asks for again.
func (r *Recorder) Start(ctx context.Context) error {
	var workers sync.WaitGroup
	for range recorders {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
	return nil
}

// ask has an update be recorded, and answers how that stands. The MachineUpdate and the Machine are as caches have them.
func (r *Recorder) ask(mu *refitv1.MachineUpdate, machine *clusterv1.Machine, digest string) inplace.Progress {
	key := client.ObjectKeyFromObject(machine)
	if last := r.answered(key, mu, machine.UID, digest); last != nil {
		return last.progress
	}
	if r.store.specs.refuses(key, digest) {
		return *otherSpecs()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, queued := r.asks[key]
	switch {
	case slices.Contains(wanted.digests, digest):
	case len(wanted.digests) >= maxDigests || !queued && len(r.asks) >= maxAsks:
		return inplace.Progress{
			Message: "more updates are asked for than can be recorded now, and this one is not yet; refit waits to be asked again", RetryAfter: retryWaiting,
		}
	default:
		if !queued {
			wanted.since = r.store.Clock.Now()
		}
		wanted.digests = append(slices.Clone(wanted.digests), digest)
		r.asks[key] = wanted
		r.queue.Add(key)
	}
	p := recording(len(r.asks))
	if wanted.failed {
		p.Message = "the update could not be recorded in the management cluster yet, and refit tries again; its log says why"
	}
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

// next records what one Machine is asked for. It returns false when there is nothing more to come.
func (r *Recorder) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	for _, digest := range r.wanted(key) {
		if err := r.record(ctx, key, digest); err != nil && r.queue.NumRequeues(key) < recordTries {
			ctrl.LoggerFrom(ctx).Info("An update could not be recorded, and is tried again", "machine", key, "reason", err.Error())
			r.failed(key)
			r.queue.AddRateLimited(key)
			return true
		}
		r.forget(key, digest)
	}
	r.queue.Forget(key)
	return true
}

func (r *Recorder) wanted(key types.NamespacedName) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asks[key].digests)
}

func (r *Recorder) failed(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of, ok := r.asks[key]; ok {
		of.failed = true
		r.asks[key] = of
	}
}

// record records one update, and how that has ended.
func (r *Recorder) record(ctx context.Context, key types.NamespacedName, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	o, err := r.store.record(ctx, key, digest)
	if err == nil && o.recorded {
		r.store.traceHook(o.made, r.askedSince(key))
		o.made = nil
		r.known.Add(key, &tried{o, digest, r.store.Clock.Now()})
	}
	return err
}

func (r *Recorder) askedSince(key types.NamespacedName) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks[key].since
}

func (r *Recorder) forget(key types.NamespacedName, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(r.asks[key].digests), func(d string) bool { return d == digest })
	if r.asks[key] = (asks{digests: left, since: r.asks[key].since}); len(left) == 0 {
		delete(r.asks, key)
	}
}

// record does what Cluster API asks for, by what caches and the API server say now.
func (s *Store) record(ctx context.Context, key types.NamespacedName, digest string) (outcome, error) {
	mu, machine, err := s.read(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return outcome{progress: *notAsked()}, nil // it went while this waited
	case err != nil:
		return outcome{}, err
	}
	o, err := s.settle(ctx, mu, machine, digest)
	o.seen = versionOf(mu)
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
