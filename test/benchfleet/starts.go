package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// manyStarts is how many starts are waited for to tell how soon many are made.
const manyStarts = 100

// longestStart is how long updates may take to start.
const longestStart = 3 * time.Minute

// starts are when the updates of a policy start: when they show that the work on their node is begun.
type starts struct {
	m     *management
	of    *policed
	watch watch.Interface
	ended sync.WaitGroup

	mu   sync.Mutex
	seen map[client.ObjectKey]bool
	at   []time.Time
	over bool
}

// watchStarts begins to watch a policy's updates, none of which has started. stop ends it.
func (m *management) watchStarts(ctx context.Context, of *policed) (*starts, error) {
	var list refitv1.MachineUpdateList
	if err := m.List(ctx, &list, client.InNamespace(of.policy.Namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list MachineUpdates: %w", err)
	}
	from := &client.ListOptions{Namespace: of.policy.Namespace, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	w, err := m.Watch(ctx, &refitv1.MachineUpdateList{}, from)
	if err != nil {
		return nil, fmt.Errorf("watch MachineUpdates: %w", err)
	}
	s := &starts{m: m, of: of, watch: w, seen: map[client.ObjectKey]bool{}}
	s.ended.Go(s.follow)
	return s, nil
}

func (s *starts) follow() {
	for event := range s.watch.ResultChan() {
		mu, ok := event.Object.(*refitv1.MachineUpdate)
		if !ok {
			break // an error
		}
		key := client.ObjectKeyFromObject(mu)
		if mu.Status.Attempts == 0 || !s.of.updates[key] {
			continue
		}
		s.mu.Lock()
		if !s.seen[key] {
			s.seen[key], s.at = true, append(s.at, time.Now())
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *starts) stop() {
	s.watch.Stop()
	s.ended.Wait()
}

// await waits until all have started, and tells how long after an instant they have.
func (s *starts) await(ctx context.Context, since time.Time) (string, error) {
	deadline := time.Now().Add(longestStart)
	for {
		s.mu.Lock()
		at, over := s.at, s.over
		s.mu.Unlock()
		switch {
		case len(at) == len(s.of.updates):
			return tellStarts(at, since), nil
		case over:
			return "", errors.New("the watch of MachineUpdates has ended")
		case time.Now().After(deadline):
			return "", fmt.Errorf("%d of %d updates of policy %s have started after %.0f s; %s", len(at), len(s.of.updates), s.of.policy, time.Since(since).Seconds(), s.late(ctx))
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// late tells of one that has not started what it waits for.
func (s *starts) late(ctx context.Context) string {
	for key := range s.of.updates {
		var mu refitv1.MachineUpdate
		if err := s.m.Get(ctx, key, &mu); err != nil {
			return err.Error()
		}
		if mu.Status.Attempts == 0 {
			return fmt.Sprintf("MachineUpdate %s is %s %s: %s", key, mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
		}
	}
	return "by now all have"
}

func tellStarts(at []time.Time, since time.Time) string {
	after := func(i int) float64 { return at[i].Sub(since).Seconds() }
	text := fmt.Sprintf("of %d updates the first starts after %.1f s", len(at), after(0))
	if len(at) > manyStarts {
		text += fmt.Sprintf(", the %dth after %.1f s", manyStarts, after(manyStarts-1))
	}
	return text + fmt.Sprintf(", the last after %.1f s", after(len(at)-1))
}
