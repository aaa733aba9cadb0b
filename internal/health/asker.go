package health

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// keptFor is how long after somebody was interested last a gate goes on to be asked: whoever waits looks again at least that often.
	keptFor = 12 * time.Minute
	// atOnce bounds how many questions are under way that were answered in time last, and patient how many of the others: clusters that don't answer take
	// all the time that they have, and are in nobody's way.
	atOnce, patient = 100, 500
	// lookEvery is how often it is looked which gates are due.
	lookEvery = time.Second
)

// Answer is what a gate has answered.
type Answer struct {
	State refitv1.GateState
	// Since is when the answer came to be that, and Says by which value, or why it is not known. What it says does not change with each question, but
	// for another cause.
	Since time.Time
	Says  string
	// At is when it was asked last; zero: it was not asked yet.
	At time.Time

	// told is what those that wait are told. It is what it was for longer than what is found out.
	told Told
}

// Told is what those that wait are told of an answer: each change of it is a write for each of them.
type Told struct {
	State refitv1.GateState
	Since time.Time
	Says  string
}

// Told returns what those that wait are told.
func (a Answer) Told() Told {
	if a.told == (Told{}) {
		return Told{a.State, a.Since, a.Says}
	}
	return a.told
}

// Policy is whose gates are asked. Another version of it has answers of its own.
type Policy struct {
	types.NamespacedName

	UID        types.UID
	Generation int64
}

// key is what has an answer of its own.
type key struct {
	policy  Policy
	gate    string
	cluster string
}

// kept is what is known of a gate.
type kept struct {
	policy types.NamespacedName
	gate   *Gate
	about  Subject
	answer Answer
	// said is since when it says what it says, and told since when those that wait are told the same, which they are for toldFor at least.
	said, told time.Time
	toldFor    time.Duration
	// wanted is when somebody was interested last, and needed from when on an answer is needed at once.
	wanted, needed time.Time
	// missed reports that somebody was not let start for want of a fresh answer.
	missed bool
	asking bool
	// prompt reports that it was answered in time last.
	prompt bool
	// next is closed with the next answer.
	next chan struct{}
}

// due reports whether it is to be asked again.
func (k *kept) due(now time.Time) bool {
	return !k.asking && (k.answer.At.IsZero() || k.answer.At.Before(k.needed) || now.Sub(k.answer.At) >= k.gate.Interval/2)
}

// Asker asks gates for those who are interested, and keeps the answers. It is for the leader, or for who holds the shard.
type Asker struct {
	Sources Sources
	Clock   clock.WithTicker
	// Holds reports whether this process works on a namespace. Nil: on all.
	Holds func(namespace string) bool

	onChange []func(namespace string)

	mu    sync.Mutex
	known map[key]*kept
	wake  chan struct{}
}

// NewAsker returns an Asker that reads from sources.
func NewAsker(sources Sources, now clock.WithTicker, holds func(namespace string) bool) *Asker {
	return &Asker{Sources: sources, Clock: now, Holds: holds, known: map[key]*kept{}, wake: make(chan struct{}, 1)}
}

// OnChange has f called when a gate of a policy in a namespace answers something else than before. It is for the time before the manager starts,
// and f is not to block.
func (a *Asker) OnChange(f func(namespace string)) { a.onChange = append(a.onChange, f) }

// Latest returns the last answer of a gate about the Machines of a Cluster, and whether an update may start by it: it is no older than the gate's
// interval. It does not wait. A gate that somebody is interested in is asked from then on.
func (a *Asker) Latest(of Policy, g *Gate, cluster string) (Answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Clock.Now()
	k := a.want(of, g, cluster, now)
	if !k.answer.At.IsZero() && now.Sub(k.answer.At) < g.Interval {
		return k.answer, true
	}
	k.missed = true
	a.poke()
	return k.answer, false
}

// Ask returns the answer of a gate to a question that was asked at or after an instant. It waits for that.
func (a *Asker) Ask(ctx context.Context, of Policy, g *Gate, cluster string, since time.Time) (Answer, error) {
	for {
		a.mu.Lock()
		k := a.want(of, g, cluster, a.Clock.Now())
		answer, next := k.answer, k.next
		if !answer.At.IsZero() && !answer.At.Before(since) {
			a.mu.Unlock()
			return answer, nil
		}
		k.needed = since
		a.poke()
		a.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// Known returns the last answers of the gates of a policy that somebody was interested in lately, by gate and then by cluster.
func (a *Asker) Known(of Policy) map[string]map[string]Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]map[string]Answer{}
	for id, k := range a.known {
		if id.policy != of || k.answer.At.IsZero() {
			continue
		}
		if out[id.gate] == nil {
			out[id.gate] = map[string]Answer{}
		}
		out[id.gate][id.cluster] = k.answer
	}
	return out
}

// want notes that somebody is interested.
func (a *Asker) want(of Policy, g *Gate, cluster string, now time.Time) *kept {
	about := g.subject(of.NamespacedName, cluster)
	id := key{of, g.Name, about.Cluster}
	k := a.known[id]
	if k == nil {
		k = &kept{policy: of.NamespacedName, about: about, next: make(chan struct{})}
		a.known[id] = k
	}
	k.gate, k.wanted = g, now
	return k
}

// poke has it be looked which gates are due.
func (a *Asker) poke() {
	select {
	case a.wake <- struct{}{}:
	default: // it is about to be looked
	}
}

// ForgetNamespaces forgets what is known of namespaces that another process has worked on meanwhile.
func (a *Asker) ForgetNamespaces(of func(namespace string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, k := range a.known {
		if of(id.policy.Namespace) {
			k.answer, k.missed = Answer{}, true // who waits has looked elsewhere
		}
	}
}

// Start asks until ctx ends. It implements manager.Runnable.
func (a *Asker) Start(ctx context.Context) error {
	ticker := a.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	var under sync.WaitGroup
	defer under.Wait()
	promptly, others := make(chan struct{}, atOnce), make(chan struct{}, patient)
	for {
		for _, k := range a.begin(a.Clock.Now()) {
			places := others
			if k.prompt { // which nobody changes but who asks it
				places = promptly
			}
			under.Go(func() {
				select {
				case places <- struct{}{}:
					a.ask(ctx, k)
					<-places
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ticker.C():
		case <-a.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// begin returns what is to be asked now, and forgets what nobody is interested in any more.
func (a *Asker) begin(now time.Time) []*kept {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*kept
	for id, k := range a.known {
		switch {
		case k.asking:
		case now.Sub(k.wanted) > keptFor:
			delete(a.known, id)
		case k.due(now) && (a.Holds == nil || a.Holds(id.policy.Namespace)):
			k.asking = true
			out = append(out, k)
		}
	}
	return out
}

// ask asks one gate.
func (a *Asker) ask(ctx context.Context, k *kept) {
	a.mu.Lock()
	gate, about, at := k.gate, k.about, a.Clock.Now()
	a.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, gate.timeout)
	defer cancel()
	found, err := a.try(asking, gate, about)
	if ctx.Err() != nil {
		return // nobody waits for it any more
	}
	k.prompt = asking.Err() == nil
	now := answerOf(at, found, err)
	before, changed := a.answer(k, now)
	if before != now.State {
		ctrl.LoggerFrom(ctx).Info("A health gate has another answer", "policy", k.policy, "gate", gate.Name, "cluster", about.Cluster, "was", before, "is", now.State, "says", now.Says)
	}
	if changed {
		for _, f := range a.onChange {
			f(about.Namespace)
		}
	}
}

// try asks, and takes a panic for no answer: what others have written must not end refit.
func (a *Asker) try(ctx context.Context, gate *Gate, about Subject) (found verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			ctrl.LoggerFrom(ctx).Error(err, "Could not ask a health gate, by a mistake of refit's", "gate", gate.Name, "stack", string(debug.Stack()))
		}
	}()
	return gate.question.ask(ctx, &a.Sources, about)
}
