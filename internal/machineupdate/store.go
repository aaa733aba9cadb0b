package machineupdate

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/tracing"
)

// How long until Cluster API asks again. It does not ask earlier, whatever happens.
const (
	retrySoon    = 1 * time.Second  // it begins, or the node is being asked whether it is done
	retryWorking = 2 * time.Second  // work is under way
	retryWaiting = 15 * time.Second // something else must happen first
	retryFailed  = 60 * time.Second // a person must act

	retryWaitingAtMost = 60 * time.Second // it has waited for long, or somebody else has the node
)

// spread returns a part of a time that differs from Machine to Machine and from state to state, so that many that wait for one
// thing don't ask together.
func spread(mu *refitv1.MachineUpdate, most time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, mu.UID, mu.Name, mu.ResourceVersion)
	return time.Duration(hash.Sum32()) * time.Second % (most + time.Second)
}

// Store records what Cluster API asks for, and answers how it stands. What it knows beside the API server only spares reads, so
// that every replica gives the same answers.
//
// Anybody who reaches the port of the hooks can ask. So a request changes nothing, and is not told that an update is done, unless the
// Machine is being updated in place by Cluster API, and to the specs that the request has: both as the API server has them now.
type Store struct {
	// Client reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clock tells how old is what was read.
	Clock clock.PassiveClock
	// Tracer exports how what is asked for was recorded. Nil: nothing is.
	Tracer *tracing.Tracer

	once     sync.Once
	specs    *liveSpecs
	recorder *Recorder // nil: what is asked for is recorded before that is answered
}

// Update implements the hook's Updates.
func (s *Store) Update(ctx context.Context, namespace, name, digest string) (inplace.Progress, error) {
	s.once.Do(func() { s.specs = &liveSpecs{clock: s.Clock, judged: lru.New(maxJudged)} })
	key := types.NamespacedName{Namespace: namespace, Name: name}
	mu, machine, err := s.read(ctx, key)
	if err != nil {
		return inplace.Progress{}, err
	}
	known := controlledBy(mu, machine) && mu.Spec.Digest == digest
	if known {
		if p := s.recorder.shown(mu, progressOf(mu, s.Clock.Now())); !p.Done {
			return p, nil
		}
	}
	switch {
	case !asked(machine):
		return *notAsked(), nil
	case s.recorder != nil && !known:
		return s.recorder.ask(mu, machine, digest), nil
	}
	began := s.Clock.Now()
	o, err := s.settle(ctx, mu, machine, digest)
	s.traceHook(o.made, began)
	return o.progress, err
}

// settle does what changes something, or tells the end: not on what caches say.
func (s *Store) settle(ctx context.Context, mu *refitv1.MachineUpdate, cached *clusterv1.Machine, digest string) (outcome, error) {
	if !asked(cached) {
		return outcome{progress: *notAsked()}, nil
	}
	machine, refused, err := s.specs.machine(ctx, reading{Reader: s.Live}, client.ObjectKeyFromObject(cached), digest)
	switch {
	case err != nil:
		return outcome{}, err
	case refused != nil:
		return outcome{progress: *refused}, nil
	default:
		return s.write(ctx, mu, machine, digest)
	}
}

// write records what Cluster API asks for, as the API server says since the MachineUpdate was read from the cache; or it tells how that stands.
func (s *Store) write(ctx context.Context, mu *refitv1.MachineUpdate, machine *clusterv1.Machine, digest string) (outcome, error) {
	switch {
	case mu == nil:
		return s.create(ctx, machine, digest)
	case !controlledBy(mu, machine):
		return s.discard(ctx, mu)
	case mu.Spec.Digest != digest:
		return s.supersede(ctx, mu, machine, digest)
	default:
		p, err := s.progress(ctx, mu)
		return outcome{progress: p}, err
	}
}

func (s *Store) create(ctx context.Context, machine *clusterv1.Machine, digest string) (outcome, error) {
	owner := metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))
	owner.BlockOwnerDeletion = nil // it would take the right to update the Machine's finalizers
	mu := &refitv1.MachineUpdate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       machine.Namespace,
			Name:            machine.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
			OwnerReferences: []metav1.OwnerReference{*owner},
			Finalizers:      []string{refitv1.UpdateFinalizer},
		},
		Spec: refitv1.MachineUpdateSpec{Digest: digest},
	}
	switch err := s.Client.Create(ctx, mu); {
	case apierrors.IsAlreadyExists(err):
		// Another replica, or this one before its cache knew, was asked as well; or it is of an earlier Machine of the name. The next call sees more.
		return outcome{progress: recording(0)}, nil
	case err != nil:
		return outcome{}, fmt.Errorf("create MachineUpdate %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return recordedFor(machine, mu), nil
}

// discard deletes the MachineUpdate of an earlier Machine of the same name.
func (s *Store) discard(ctx context.Context, mu *refitv1.MachineUpdate) (outcome, error) {
	err := s.Client.Delete(ctx, mu.DeepCopy(), client.Preconditions{UID: &mu.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return outcome{}, fmt.Errorf("delete the MachineUpdate of an earlier Machine: %w", err)
	}
	return outcome{progress: recording(0)}, nil
}

// supersede asks for other specs than before. What is under way for the earlier ones ends first.
func (s *Store) supersede(ctx context.Context, mu *refitv1.MachineUpdate, machine *clusterv1.Machine, digest string) (outcome, error) {
	changed := mu.DeepCopy()
	changed.Spec.Digest = digest
	// Somebody may have edited it.
	metav1.SetMetaDataLabel(&changed.ObjectMeta, clusterv1.ClusterNameLabel, machine.Spec.ClusterName)
	if mu.DeletionTimestamp.IsZero() { // else the API server refuses it
		controllerutil.AddFinalizer(changed, refitv1.UpdateFinalizer)
	}
	err := s.Client.Patch(ctx, changed, client.MergeFromWithOptions(mu, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err): // the cache is behind; the next call sees more
		return outcome{progress: recording(0)}, nil
	case err != nil:
		return outcome{}, fmt.Errorf("ask MachineUpdate %s for other specs: %w", client.ObjectKeyFromObject(mu), err)
	default:
		ctrl.LoggerFrom(ctx).Info("Cluster API asks for other specs", "machineUpdate", client.ObjectKeyFromObject(mu))
	}
	return recordedFor(machine, changed), nil
}

// progress answers how an update stands.
func (s *Store) progress(ctx context.Context, mu *refitv1.MachineUpdate) (inplace.Progress, error) {
	p := progressOf(mu, s.Clock.Now())
	if !p.Done {
		return p, nil
	}
	// Done can't be taken back, and the cache may be behind.
	var live refitv1.MachineUpdate
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(mu), &live); err != nil {
		return inplace.Progress{}, fmt.Errorf("read MachineUpdate %s: %w", client.ObjectKeyFromObject(mu), err)
	}
	if live.UID != mu.UID || live.Spec.Digest != mu.Spec.Digest {
		return pending(), nil
	}
	return progressOf(live.Restored(), s.Clock.Now()), nil
}

// recordedFor answers who asks for an update that is recorded.
func recordedFor(machine *clusterv1.Machine, made *refitv1.MachineUpdate) outcome {
	return outcome{progress: pending(), recorded: true, machine: machine.UID, made: made}
}

func pending() inplace.Progress {
	return inplace.Progress{Message: "the update is recorded and begins shortly", RetryAfter: retrySoon}
}

// waitingFor is until when Cluster API does not ask again about an update that waits: what has waited for long is asked about less often,
// since a fleet that waits for a window is thousands of questions a second otherwise. Other waits end sooner, and the next Machine may wait for the end of
// this one's update, which nobody sees before Cluster API asks.
func waitingFor(st *refitv1.MachineUpdateStatus, now time.Time) time.Duration {
	if st.StartedAt == nil {
		return retryWaiting
	}
	part := time.Duration(8)
	if st.Reason == refitv1.ReasonWindow {
		part = 2
	}
	return min(max(now.Sub(st.StartedAt.Time)/part, retryWaiting), retryWaitingAtMost).Truncate(time.Second)
}

func progressOf(mu *refitv1.MachineUpdate, now time.Time) inplace.Progress {
	st := mu.Status
	if st.ObservedDigest != mu.Spec.Digest {
		return pending()
	}
	if !mu.DeletionTimestamp.IsZero() && st.Phase != refitv1.PhaseSucceeded {
		return inplace.Progress{Message: deletedMessage, RetryAfter: retryWorking}
	}
	// It becomes a part of a condition's message, after some words of Cluster API's.
	p := inplace.Progress{Message: shorten(st.Message, maxHint), RetryAfter: retryWorking}
	switch st.Phase {
	case refitv1.PhaseSucceeded:
		p.Done = true
	case refitv1.PhaseFailed:
		p.RetryAfter = retryFailed
	case refitv1.PhaseWaiting:
		p.RetryAfter = waitingFor(&st, now)
		if st.Reason == refitv1.ReasonHold || st.Reason == refitv1.ReasonLease {
			p.RetryAfter = min(p.RetryAfter+spread(mu, retryWaitingAtMost-retryWaiting), retryWaitingAtMost)
		}
	case refitv1.PhasePending, refitv1.PhaseStaging, refitv1.PhaseVerifying:
		p.RetryAfter = retrySoon
	default:
	}
	return p
}
