package slots

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// censusFor is how old a census may be for an answer that gives no slot: many ask at once.
	censusFor = time.Second
	// peersFor is how old what a workload cluster said may be.
	peersFor = 2 * time.Second
	// peersTimeout bounds how long it is asked. Meanwhile no slot of the cluster is given.
	peersTimeout = 10 * time.Second

	// How long until another try, with a jitter: nothing but caches are asked as long as no slot is free.
	retryAtLeast = 10 * time.Second
	retryAtMost  = 20 * time.Second
)

// ErrPeers is returned when the workload cluster can't be asked who else disturbs its nodes. Try again later.
var ErrPeers = errors.New("the workload cluster can't be asked who else disturbs its nodes")

// Slots gives slots. It is for the leader: they are counted in one place. It must not be copied.
type Slots struct {
	// Client reads from a cache of the management cluster.
	Client client.Reader
	// Live reads from its API server.
	Live   client.Reader
	Limits Limits
	Clock  clock.PassiveClock

	mu         sync.Mutex
	clusters   map[types.NamespacedName]*cluster
	namespaces map[string]*namespace
}

// Full is why no slot is free. It is an answer and no failure: try again after RetryAfter.
type Full struct {
	// Message is for people. The same state gives the same message.
	Message string
	// RetryAfter has a jitter by Machine, so that those who wait do not come together.
	RetryAfter time.Duration
}

// Take has write record the slot in the MachineUpdate if one is free, and returns why none is. A MachineUpdate that has one keeps
// it: then nothing is counted, and nothing written.
//
// The MachineUpdate must be as the API server has it, and what writes it be guarded by its resourceVersion. A write that is
// answered by Conflict or NotFound has taken nothing. After any other error the slot counts as taken until it is known not to
// be, and the same Machine may try again. Until write has returned no other slot of the cluster is given.
//
// peers are those of the Machine's cluster. They are asked only if otherwise a slot would be free; that they can't be asked
// is ErrPeers. What can't be read is an error, and gives no slot.
func (s *Slots) Take(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, peers Peers, write func() error) (*Full, error) {
	if !isOf(controller(mu), machine) || mu.Name != machine.Name || mu.Namespace != machine.Namespace {
		return nil, fmt.Errorf("take a slot: MachineUpdate %s is not that of Machine %s with uid %s",
			client.ObjectKeyFromObject(mu), client.ObjectKeyFromObject(machine), machine.UID)
	}
	if mu.Status.Slot != nil {
		return nil, nil
	}
	c, err := s.enter(ctx, machine, peers)
	if err != nil {
		return nil, fmt.Errorf("take a slot: %w", err)
	}
	defer c.turn.give()
	if why, err := s.full(ctx, toTake, c, machine, peers); err != nil || why != "" {
		return full(machine, why), err
	}
	return nil, s.record(c, machine, mu, write)
}

// MayBegin returns why a Machine that has a slot, and on whose node nothing was changed, may not be disturbed now: since it took the
// slot, others have become ill without which the cluster can't spare it. It should give its node and its slot back then; of several, only
// as many are told to as are too many. Ask before each disturbance, as a slot can be old: that of a failed update, or of a node that
// took long to drain. Nothing is written. peers and errors are as for Take.
func (s *Slots) MayBegin(ctx context.Context, machine *clusterv1.Machine, peers Peers) (*Full, error) {
	return s.again(ctx, toBegin, machine, peers)
}

// MayGoOn is MayBegin for a Machine whose node may be half changed, which keeps its slot meanwhile. It waits for those that are ill, and
// not for workers that have slots as well.
func (s *Slots) MayGoOn(ctx context.Context, machine *clusterv1.Machine, peers Peers) (*Full, error) {
	return s.again(ctx, toGoOn, machine, peers)
}

// again asks for a Machine that has a slot.
func (s *Slots) again(ctx context.Context, q question, machine *clusterv1.Machine, peers Peers) (*Full, error) {
	c, err := s.enter(ctx, machine, peers)
	if err != nil {
		return nil, fmt.Errorf("ask for the health of other nodes: %w", err)
	}
	defer c.turn.give()
	why, err := s.full(ctx, q, c, machine, peers)
	return full(machine, why), err
}

// enter returns the Machine's cluster when it is the caller's turn, which the caller gives back.
func (s *Slots) enter(ctx context.Context, machine *clusterv1.Machine, peers Peers) (*cluster, error) {
	if peers == nil {
		return nil, errors.New("nobody tells who else disturbs the nodes of the cluster")
	}
	if err := s.Limits.Validate(); err != nil {
		return nil, err
	}
	if err := s.prime(ctx, machine.Namespace); err != nil {
		return nil, err
	}
	c := s.cluster(types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err := c.turn.take(ctx); err != nil {
		return nil, fmt.Errorf("wait for the other updates of Cluster %s: %w", c.key, err)
	}
	return c, nil
}

// full returns why no slot is free for the Machine, or why it may not be disturbed; "" if neither. What the management cluster knows is
// looked at alone first, and only if that leaves a slot what the workload cluster says, so that the message does not depend on who else
// has asked.
func (s *Slots) full(ctx context.Context, q question, c *cluster, machine *clusterv1.Machine, peers Peers) (string, error) {
	self := memberOf(machine)
	if why, err := s.glance(q, c, self); err != nil || why != "" {
		return why, err
	}
	members, err := s.count(ctx, c)
	if err != nil {
		return "", err
	}
	c.census, c.countedAt = members, s.Clock.Now()
	if why, err := s.Limits.full(q, members, self, nil); err != nil || why != "" {
		return why, err
	}
	held, err := s.ask(ctx, c, peers)
	if err != nil {
		return "", err
	}
	return s.Limits.full(q, members, self, held)
}

// glance returns why there was no slot a moment ago, or "" if there was one or it is not known.
func (s *Slots) glance(q question, c *cluster, self member) (string, error) {
	now := s.Clock.Now()
	if !recent(now, c.countedAt, censusFor) {
		return "", nil
	}
	if why, err := s.Limits.full(q, c.census, self, nil); err != nil || why != "" {
		return why, err
	}
	if !recent(now, c.askedAt, peersFor) {
		return "", nil
	}
	return s.Limits.full(q, c.census, self, c.held)
}

// ask returns the nodes that others disturb, as they were a moment ago. What can't be told now is not asked for again at once.
func (s *Slots) ask(ctx context.Context, c *cluster, peers Peers) (map[string]string, error) {
	if recent(s.Clock.Now(), c.askedAt, peersFor) {
		return c.held, c.heldErr
	}
	bounded, cancel := context.WithTimeout(ctx, peersTimeout)
	defer cancel()
	held, err := peers.Taken(bounded)
	if ctx.Err() != nil {
		return nil, ctx.Err() // that says nothing about the cluster
	}
	if err != nil {
		held, err = nil, fmt.Errorf("%w (Cluster %s): %w", ErrPeers, c.key, err)
	}
	c.held, c.heldErr, c.askedAt = held, err, s.Clock.Now()
	return held, err
}

func full(machine *clusterv1.Machine, why string) *Full {
	if why == "" {
		return nil
	}
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, machine.UID)
	jitter := time.Duration(hash.Sum32()) * time.Millisecond % (retryAtMost - retryAtLeast + 1)
	return &Full{Message: why, RetryAfter: retryAtLeast + jitter}
}

// recent reports whether what was read at an instant is still good for some time. At the very instant it is not, since clocks are
// coarse and may stand still; nor is it when the clock was put back.
func recent(now, at time.Time, good time.Duration) bool {
	age := now.Sub(at)
	return age > 0 && age < good
}

// controller returns the uid of the Machine that a MachineUpdate belongs to, or "" if it does not say.
func controller(mu *refitv1.MachineUpdate) types.UID {
	if ref := metav1.GetControllerOfNoCopy(mu); ref != nil {
		return ref.UID
	}
	return ""
}

// isOf reports whether a MachineUpdate whose controller is owner belongs to the Machine of its name. One that does not say does.
func isOf(owner types.UID, machine *clusterv1.Machine) bool {
	return owner == "" || owner == machine.UID
}

// cluster is what is known of the slots of one cluster. It is changed by who has the turn.
type cluster struct {
	key  types.NamespacedName
	turn turn

	taken map[string]taken // by the name of the MachineUpdate

	census    census
	countedAt time.Time

	held    map[string]string // who disturbs nodes, by node
	heldErr error
	askedAt time.Time
}

func (s *Slots) cluster(key types.NamespacedName) *cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clusters == nil {
		s.clusters = map[types.NamespacedName]*cluster{}
	}
	c := s.clusters[key]
	if c == nil {
		c = &cluster{key: key, turn: newTurn(), taken: map[string]taken{}}
		s.clusters[key] = c
	}
	return c
}

// turn lets in one at a time. Who waits for it, unlike for a mutex, can give up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }
