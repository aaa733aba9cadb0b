package slots

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
)

// settled is how long after a write that was not answered the API server may still make it. By default it gives up a request
// after a minute.
const settled = 2 * time.Minute

// taken is a slot that was taken here, or by an earlier leader. It is remembered until the cache knows that it is free.
type taken struct {
	update, owner types.UID // of the MachineUpdate, and of its Machine
	// from is the resourceVersion from which on the MachineUpdate tells itself whether it has the slot. An earlier one does not
	// know of it.
	from int64
	// sure reports that it was written. If not, it may have been, at begun or a little later.
	sure  bool
	begun time.Time
}

// holder is who has a slot.
type holder struct {
	owner types.UID
	slot  slot
	// changed reports whether its node may be half changed.
	changed bool
	// soaks reports that its work is done, and that the node is watched before that counts as a success.
	soaks bool
}

func holderOf(mu *refitv1.MachineUpdate) holder {
	h := holder{owner: controller(mu), slot: updating, changed: mu.Status.ApplyingSince != nil}
	if mu.Status.Phase == refitv1.PhaseFailed && mu.Status.ObservedDigest == mu.Spec.Digest {
		h.slot = failed
	}
	h.soaks = mu.Status.SoakingSince != nil && h.slot != failed
	return h
}

// record has write record the slot, and remembers it. It does so before: who knows how write returns.
func (s *Slots) record(c *cluster, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, write func() error) error {
	revision, err := revisionOf(mu)
	if err != nil {
		return err
	}
	before, remembered := c.taken[mu.Name]
	t := taken{update: mu.UID, owner: machine.UID, from: revision + 1, begun: s.Clock.Now()}
	c.taken[mu.Name] = t
	err = write()
	switch {
	case err == nil:
		t.sure = true
		c.taken[mu.Name] = t
	case changemanagement.MayBeWritten(err):
		t.begun = s.Clock.Now()
		c.taken[mu.Name] = t
	case remembered:
		c.taken[mu.Name] = before // an earlier try, whose success may be what this one was in conflict with
	default:
		delete(c.taken, mu.Name)
	}
	return err
}

// knows reports whether what mu says is from after the slot was taken, or may have been.
func (t taken) knows(mu *refitv1.MachineUpdate) (bool, error) {
	revision, err := revisionOf(mu)
	return revision >= t.from, err
}

// settle returns who has the slot that was taken, or may have been. cached is the MachineUpdate in the cache, nil if it is not there.
// It returns nil when nobody has the slot: then it is forgotten.
func (s *Slots) settle(ctx context.Context, c *cluster, name string, t taken, cached *refitv1.MachineUpdate) (*holder, error) {
	possible := t.sure || s.Clock.Since(t.begun) < settled
	if cached != nil && cached.UID == t.update {
		known, err := t.knows(cached)
		if err != nil {
			return nil, err
		}
		if known && cached.Status.Slot != nil {
			h := holderOf(cached)
			return &h, nil
		}
		if known {
			delete(c.taken, name)
			return nil, nil
		}
		if possible {
			return &holder{owner: t.owner, slot: updating}, nil
		}
	}
	h, err := s.settleLive(ctx, types.NamespacedName{Namespace: c.key.Namespace, Name: name}, t, possible)
	if h == nil && err == nil {
		delete(c.taken, name)
	}
	return h, err
}

// settleLive does so when the cache is behind, or the MachineUpdate is gone or another. possible says that the slot may have been
// written, or may still be.
func (s *Slots) settleLive(ctx context.Context, key types.NamespacedName, t taken, possible bool) (*holder, error) {
	var live refitv1.MachineUpdate
	switch err := s.Live.Get(ctx, key, &live); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s: %w", key, err)
	case live.UID != t.update:
		return nil, nil
	}
	known, err := t.knows(&live)
	if err != nil {
		return nil, err
	}
	if now := live.Restored(); known && now.Status.Slot != nil {
		h := holderOf(now)
		return &h, nil
	}
	if known || !possible {
		return nil, nil
	}
	return &holder{owner: t.owner, slot: updating}, nil
}

// revisionOf returns the resourceVersion, an integer that grows with each write.
func revisionOf(mu *refitv1.MachineUpdate) (int64, error) {
	n, err := strconv.ParseInt(mu.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resourceVersion of MachineUpdate %s tells no order: %w", client.ObjectKeyFromObject(mu), err)
	}
	return n, nil
}

// namespace reports whether the slots that an earlier leader has given there are known.
type namespace struct {
	turn   turn
	primed bool
}

// prime reads once what another leader may have given just before, which a cache may not know yet. Nobody who takes a slot in
// the namespace gets past here before.
func (s *Slots) prime(ctx context.Context, name string) error {
	ns := s.namespace(name)
	if err := ns.turn.take(ctx); err != nil {
		return fmt.Errorf("wait for the MachineUpdates of namespace %s to be read: %w", name, err)
	}
	defer ns.turn.give()
	if ns.primed {
		return nil
	}
	err := index.EachLive(ctx, s.Live, name, func(mu *refitv1.MachineUpdate) error { return s.learn(ctx, mu.Restored()) })
	ns.primed = err == nil
	return err
}

// learn remembers the slot that a MachineUpdate has, if it has one.
func (s *Slots) learn(ctx context.Context, mu *refitv1.MachineUpdate) error {
	if mu.Status.Slot == nil {
		return nil
	}
	revision, err := revisionOf(mu)
	if err != nil {
		return err
	}
	machine, err := s.ownerOf(ctx, mu)
	if err != nil || machine == nil {
		return err
	}
	c := s.cluster(types.NamespacedName{Namespace: mu.Namespace, Name: machine.Spec.ClusterName})
	c.taken[mu.Name] = taken{update: mu.UID, owner: controller(mu), from: revision, sure: true}
	return nil
}

// Forget forgets what is known of namespaces in which another process has given slots meanwhile.
func (s *Slots) Forget(of func(namespace string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.namespaces, func(name string, _ *namespace) bool { return of(name) })
	maps.DeleteFunc(s.clusters, func(key types.NamespacedName, _ *cluster) bool { return of(key.Namespace) })
}

// ownerOf returns the Machine of a MachineUpdate, or nil if it is gone. It tells the cluster, for good: the label of a MachineUpdate is
// anybody's to edit. Only if the cache has another Machine of the name, or none, is the API server asked.
func (s *Slots) ownerOf(ctx context.Context, mu *refitv1.MachineUpdate) (*clusterv1.Machine, error) {
	key := client.ObjectKeyFromObject(mu)
	for _, from := range []client.Reader{s.Client, s.Live} {
		var m clusterv1.Machine
		switch err := from.Get(ctx, key, &m); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read Machine %s: %w", key, err)
		case isOf(controller(mu), &m):
			return &m, nil
		}
	}
	return nil, nil
}

func (s *Slots) namespace(name string) *namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces == nil {
		s.namespaces = map[string]*namespace{}
	}
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{turn: newTurn()}
		s.namespaces[name] = ns
	}
	return ns
}
