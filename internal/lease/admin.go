package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdForever is as good as for ever to medik8s, which does not know holders whose leases never lapse.
const holdForever = 10 * 365 * 24 * time.Hour

// Hold has an administrator hold a node by its lease: to refit until Unhold, to medik8s for d, or if d is 0 for years. It returns
// a HeldError while another holds the lease, which may be refit itself.
func (l *Locker) Hold(ctx context.Context, node, admin, reason string, d time.Duration) error {
	if admin == "" || d < 0 {
		return errors.New("a node is held by somebody, and not for less than no time")
	}
	n := &corev1.Node{}
	if err := l.Client.Get(ctx, types.NamespacedName{Name: node}, n); err != nil {
		return fmt.Errorf("read Node %s: %w", node, err)
	}
	current, err := l.read(ctx, node)
	if err != nil {
		return err
	}
	holder := adminPrefix + admin
	if hold := l.blocked(current, holder); hold != nil {
		return l.held(n, []Hold{*hold}, nil)
	}
	if err := l.checkClock(ctx); err != nil {
		return err
	}
	lease := taken(current, l.key(node), n, holder)
	if reason != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, HoldReasonAnnotation, reason)
	}
	renewed(lease, l.Clock.Now(), min(cmp.Or(d, holdForever), holdForever))
	return l.write(ctx, n, current == nil, lease)
}

// Unhold ends what the administrator's Hold has begun. It returns a HeldError when another holds the lease, and nil when nobody
// does.
func (l *Locker) Unhold(ctx context.Context, node, admin string) error {
	lease, err := l.read(ctx, node)
	if err != nil || lease == nil || holderOf(lease) == "" {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if holderOf(lease) != adminPrefix+admin {
		hold := Hold{
			Kind: NodeLease, What: "node lease", Holder: holderOf(lease), Since: sinceOf(lease),
			Release: "only its holder releases it",
		}
		return l.held(n, []Hold{hold}, nil)
	}
	released(lease, l.Clock.Now())
	return l.write(ctx, n, false, lease)
}

// Swept is what a sweep has found.
type Swept struct {
	// Released are the names of the leases that it has released.
	Released []string
	found    sets.Set[string]
}

// Absent reports whether a node had no lease, nobody's.
func (s Swept) Absent(node string) bool {
	return s.found != nil && node != "" && !s.found.Has(Name(node))
}

// Sweep releases what an earlier process has left behind: the leases of refit on Machines of which leftover says that nothing
// goes on there. It must say so of no Machine that it does not know: another management cluster's refit may work on it.
// Whatever somebody else writes at the same time is left alone.
func (l *Locker) Sweep(ctx context.Context, leftover func(machine types.UID) bool) (Swept, error) {
	var list coordinationv1.LeaseList
	if err := l.Client.List(ctx, &list, client.InNamespace(l.namespace())); err != nil {
		return Swept{}, fmt.Errorf("list Leases in %s: %w", l.namespace(), err)
	}
	swept := Swept{found: sets.New[string]()}
	var errs []error
	for i := range list.Items {
		lease := &list.Items[i]
		swept.found.Insert(lease.Name)
		machine, ours := strings.CutPrefix(holderOf(lease), holderPrefix)
		if !ours || !lease.DeletionTimestamp.IsZero() || !leftover(types.UID(machine)) {
			continue
		}
		done, err := l.release(ctx, lease)
		if done {
			swept.Released = append(swept.Released, lease.Name)
		}
		errs = append(errs, err)
	}
	return swept, errors.Join(errs...)
}

// Release releases the lease of a node if it is refit's for the Machine, whichever process has acquired it. What somebody else writes at
// the same time is left alone.
func (l *Locker) Release(ctx context.Context, node string, machine types.UID) error {
	lease, err := l.read(ctx, node)
	if err != nil || !isHolder(lease, machine) {
		return err
	}
	_, err = l.release(ctx, lease)
	return err
}

// release releases a lease as it was read. It returns false when somebody else has written it since.
func (l *Locker) release(ctx context.Context, lease *coordinationv1.Lease) (bool, error) {
	released(lease, l.Clock.Now())
	err := l.Client.Update(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("release Lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return true, nil
}

// KeptUntil returns until when the lease of a node keeps others off for the Machine if nobody renews it. It is zero when the lease is
// not refit's for that Machine.
func (l *Locker) KeptUntil(ctx context.Context, node string, machine types.UID) (time.Time, error) {
	lease, err := l.read(ctx, node)
	if err != nil || !isHolder(lease, machine) || lease.Spec.RenewTime == nil {
		return time.Time{}, err
	}
	return lease.Spec.RenewTime.Add(durationOf(lease)), nil
}
