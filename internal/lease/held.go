package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// writeAttempts is how often a write is tried when others write at the same time.
const writeAttempts = 5

// Why a lease is lost that was released, and one of which only the answer to that is missing: another may have it.
var (
	errReleased  = fmt.Errorf("%w: it was released", ErrLost)
	errReleasing = fmt.Errorf("%w: it is being released", ErrLost)
)

// Held is an acquired lease. It may be used by several goroutines.
type Held struct {
	locker   *Locker
	facts    func(context.Context) (Facts, error)
	key      types.NamespacedName
	lease    types.UID
	machine  types.UID
	node     types.UID
	cordoned bool
	duration time.Duration
	acquired time.Time
	since    time.Time // when it was acquired for the Machine first
	before   time.Time // when another process renewed it last before that, for the same Machine; zero if none did

	// writing is held by whoever writes the lease, so that a slow API server delays nobody who only asks.
	writing sync.Mutex
	// written is the lease as it was written last, so that it need not be read before it is written again. Nil: how that ended is not known.
	written *coordinationv1.Lease

	mu      sync.Mutex
	seen    *corev1.Node // as the last look for holds has seen it, at seenAt
	seenAt  time.Time
	record  Record
	renewed time.Time // when the last write that succeeded began
	lost    error
}

// Token is what fences the node: it is greater than those of all acquisitions before.
func (h *Held) Token() int64 { return h.noted().Token }

// NodeUID is the Node whose lease it is.
func (h *Held) NodeUID() types.UID { return h.node }

// Since is when the lease was acquired for the Machine: by this process, or by one before it that has not released it.
func (h *Held) Since() time.Time { return h.since }

// Unkept is for how long nobody had renewed the lease when it was acquired. It returns false if it is not known, because it was not the
// Machine's before, or was acquired by the same process.
func (h *Held) Unkept() (time.Duration, bool) {
	if h.before.IsZero() {
		return 0, false
	}
	return max(0, h.acquired.Sub(h.before)), true
}

// Cordoned reports whether the node was cordoned before: then it is not for refit to uncordon it.
func (h *Held) Cordoned() bool { return h.cordoned }

// Enter notes the step that is being done. The next renewal shows it.
func (h *Held) Enter(step string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record.Step = step
}

func (h *Held) noted() Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.record
}

// Allows returns nil when a step may start as far as the lease is concerned, and what speaks against it: ErrLost, or for a step
// that disturbs ErrUnrenewed. Steps that bring the API back do not disturb in that sense. It asks nobody, so that it can be
// asked while the API server is away.
func (h *Held) Allows(disruptive bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	if ago := elapsed(h.renewed, h.locker.Clock.Now()); disruptive && 3*ago >= 2*h.duration {
		return fmt.Errorf("%w: the last time was %s ago", ErrUnrenewed, ago.Round(time.Second))
	}
	return nil
}

// Check looks for holds. It belongs before each step: a HeldError means to finish what must not be left half done, to release,
// and to say so.
func (h *Held) Check(ctx context.Context) error { return h.check(ctx, nil) }

// CheckSeen does so with the Node as the last look has seen it, and does not read it. It belongs before a write of the Node that fails if that is another
// by now; if it does, Check belongs after it.
func (h *Held) CheckSeen(ctx context.Context) error {
	n, _ := h.Seen()
	return h.check(ctx, n)
}

// check looks for holds. A Node that is nil is read.
func (h *Held) check(ctx context.Context, n *corev1.Node) error {
	facts, err := h.facts(ctx)
	if err != nil {
		return err
	}
	if facts.Machine != nil && facts.Machine.UID != h.machine {
		return fmt.Errorf("%w: %s has uid %s, and had %s", ErrMachineReplaced, facts.Machine.Name, facts.Machine.UID, h.machine)
	}
	survey, err := h.locker.survey(ctx, facts, h.node, n)
	if err != nil {
		return err
	}
	if len(survey.Holds) > 0 {
		return h.locker.held(survey.Node, survey.Holds, nil)
	}
	if n == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen, h.seenAt = survey.Node, survey.at
	}
	return nil
}

// Seen returns the Node as the last look for holds that has found none has seen it, and when that was. It is not to be changed.
func (h *Held) Seen() (*corev1.Node, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen, h.seenAt
}

// Renew renews the lease. After an error that is not ErrLost it may still be ours: try again.
func (h *Held) Renew(ctx context.Context) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	if err := h.gone(); err != nil {
		return err
	}
	var began time.Time
	err := h.write(ctx, func(lease *coordinationv1.Lease) error {
		began = h.locker.Clock.Now()
		renewed(lease, began, h.duration)
		return h.noted().write(lease)
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = began
	return nil
}

// Keep renews the lease until ctx ends or the lease is lost, of which the latter is an error.
func (h *Held) Keep(ctx context.Context) error {
	for {
		timer := h.locker.Clock.NewTimer(RenewEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		switch err := h.Renew(ctx); {
		case errors.Is(err, ErrLost):
			return err
		case err != nil:
			ctrl.LoggerFrom(ctx).Info("Could not renew the node lease", "lease", h.key, "reason", err.Error())
		}
	}
}

// Release releases the lease, so that medik8s can take it at once. From its beginning on nothing may start, even if it fails; it
// can be tried again. It does nothing if that was done before, and returns ErrLost if there is nothing left to release.
func (h *Held) Release(ctx context.Context) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	switch err := h.gone(); {
	case err == errReleased: //nolint:errorlint // other losses are ErrLost as well
		return nil
	case err != nil && err != errReleasing: //nolint:errorlint // the same
		return err
	}
	h.set(errReleasing)
	err := h.write(ctx, func(lease *coordinationv1.Lease) error {
		released(lease, h.locker.Clock.Now())
		return nil
	})
	if err == nil {
		h.set(errReleased)
	}
	return err
}

// abandon releases a lease that must not be used, and returns why. Whatever has ended the caller's context, the lease should not
// stay behind.
func (h *Held) abandon(ctx context.Context, why error) error {
	if err := h.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("%w; and the node lease could not be released: %s", why, err.Error())
	}
	return why
}

// write changes the lease if it is still the one that was acquired. As long as nobody else has written it, it is as it was written last, which
// the API server knows by its resourceVersion. That somebody else has written it as well, a label for instance, does not matter: it is read then.
func (h *Held) write(ctx context.Context, change func(*coordinationv1.Lease) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var conflict error
	for range writeAttempts {
		lease, err := h.current(ctx)
		if err != nil {
			return err
		}
		if err := change(lease); err != nil {
			return err
		}
		h.written = nil
		if conflict = h.locker.Client.Update(ctx, lease); conflict == nil {
			h.written = lease
			return nil
		}
		if !apierrors.IsConflict(conflict) {
			break
		}
	}
	return h.failed("write", conflict)
}

// current returns the lease as it was written last, or as it is.
func (h *Held) current(ctx context.Context) (*coordinationv1.Lease, error) {
	if h.written != nil {
		return h.written.DeepCopy(), nil
	}
	lease := &coordinationv1.Lease{}
	if err := h.locker.Client.Get(ctx, h.key, lease); err != nil {
		return nil, h.failed("read", err)
	}
	if why := h.foreign(lease); why != "" {
		return nil, h.lose(why)
	}
	return lease, nil
}

func (h *Held) failed(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return h.lose("it was deleted")
	default:
		return fmt.Errorf("%s Lease %s: %w", verb, h.key, err)
	}
}

// foreign returns why the lease is not the one that was acquired, or "". The annotation is looked at last, since it means nothing
// when another holds the lease.
func (h *Held) foreign(lease *coordinationv1.Lease) string {
	if lease.UID != h.lease {
		return "it was deleted and made again"
	}
	if !lease.DeletionTimestamp.IsZero() {
		return "it is being deleted"
	}
	if holder := holderOf(lease); holder != Holder(h.machine) {
		return fmt.Sprintf("it is held by %q since %s", holder, sinceOf(lease).UTC().Format(time.RFC3339))
	}
	noted, ok := RecordOf(lease)
	mine := h.noted()
	if !ok || noted.Instance != mine.Instance || noted.After != mine.After {
		return fmt.Sprintf("instance %q has acquired it since", noted.Instance)
	}
	return ""
}

func (h *Held) lose(why string) error {
	err := fmt.Errorf("%w: %s", ErrLost, why)
	h.set(err)
	return err
}

func (h *Held) set(lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = lost
}

func (h *Held) gone() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}
