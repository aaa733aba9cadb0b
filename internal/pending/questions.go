package pending

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// askedAtOnce is about how many owners registered extensions are asked at once, in the whole fleet: each may take as long to answer as a hook waits.
	askedAtOnce = 3
	// askAgain is how long after an answer, at the earliest, the same is asked again: nobody tells when the answer changes.
	askAgain = time.Minute
	// longestQuestion is how long one question may take, with what is read for it.
	longestQuestion = 30 * time.Second
	// lookForQuestions is how often what is to be asked is looked for.
	lookForQuestions = time.Second
)

// question is what registered extensions are asked about the Machines of a MachineSet, or about one of a control plane.
type question struct {
	machine client.ObjectKey
	cluster string
	on      rests     // as of the last view
	wanted  time.Time // by a view, last
	since   time.Time // when it was asked last, or wanted first
	asked   bool      // with what it rests on now
	asking  bool
	said    *verdict // with what it rested on
}

// questions are those that views have. Views read the last answers, and a worker asks.
type questions struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*question // by what a verdict is known by
}

// want returns the last answer to a question, if what it rests on is the same still, and has it asked.
func (q *questions) want(key types.NamespacedName, machine client.ObjectKey, cluster string, on rests, now time.Time) (verdict, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.all[key]
	if one == nil {
		one = &question{since: now}
		if q.all == nil {
			q.all = map[types.NamespacedName]*question{}
		}
		q.all[key] = one
	}
	one.asked = one.asked && one.on == on
	one.machine, one.cluster, one.on, one.wanted = machine, cluster, on, now
	if one.said == nil || one.said.rests != on {
		return verdict{}, false
	}
	return *one.said, true
}

// next returns the question that has been waiting longest: each is asked in its turn.
func (q *questions) next(now time.Time) (key types.NamespacedName, _ question, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first *question
	for k, one := range q.all {
		if one.asking || one.asked && now.Sub(one.since) < askAgain || now.Sub(one.wanted) > knownFor {
			continue
		}
		if first == nil || one.since.Before(first.since) || one.since.Equal(first.since) && k.String() < key.String() {
			key, first = k, one
		}
	}
	if first == nil {
		return key, question{}, false
	}
	first.asking, first.since, first.asked = true, now, true
	return key, *first, true
}

// answered keeps an answer, nil if there is none, and reports whether it says something else than the one before.
func (q *questions) answered(key types.NamespacedName, on rests, said *verdict) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.all[key]
	if one == nil { // nobody wants it any more
		return false
	}
	one.asking = false
	if said == nil {
		one.asked = false
		return false
	}
	before := one.said
	said.rests, one.said = on, said
	return before == nil || before.rests != on || before.cause != said.cause || before.note != said.note || !slices.Equal(before.claims, said.claims)
}

// forget forgets the questions of a namespace that no view has wanted since, and those that were not wanted for long.
func (q *questions) forget(namespace string, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, one := range q.all {
		if key.Namespace == namespace && one.wanted.Before(since) || since.Sub(one.wanted) > keptFor {
			delete(q.all, key)
		}
	}
}

// forgetAll forgets the questions of some namespaces.
func (q *questions) forgetAll(of func(namespace string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.all {
		if of(key.Namespace) {
			delete(q.all, key)
		}
	}
}

// askRegistered has registered extensions asked until the context ends.
func (v *View) askRegistered(ctx context.Context) error {
	var workers sync.WaitGroup
	for range askedAtOnce {
		workers.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				for ctx.Err() == nil && v.askNext(ctx) {
				}
			}, lookForQuestions)
		})
	}
	workers.Wait()
	return nil
}

// askNext asks one question, and has the view looked at again if the answer is news. It reports whether there was a question. It holds no lock while it waits
// for the answer.
func (v *View) askNext(ctx context.Context) bool {
	q := &v.Owners.questions
	key, one, ok := q.next(v.Owners.Clock.Now())
	if !ok {
		return false
	}
	within, leave, ok := v.shards.Enter(ctx, key.Namespace)
	if !ok { // another replica has the namespace now, and asks
		q.forgetAll(func(namespace string) bool { return namespace == key.Namespace })
		return true
	}
	defer leave()
	asked, cancel := context.WithTimeout(within, longestQuestion)
	defer cancel()
	said := v.Owners.ask(asked, one.machine)
	if within.Err() != nil { // it was broken off
		q.answered(key, one.on, nil)
		return true
	}
	said.at = v.Owners.Clock.Now()
	if q.answered(key, one.on, &said) && v.woken != nil {
		about := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: one.cluster}}
		select {
		case v.woken <- event.GenericEvent{Object: about}:
		case <-within.Done():
		}
	}
	return true
}
