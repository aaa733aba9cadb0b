package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// open permits that a policy's updates start, in a window that opens each day.
func (m *management) open(ctx context.Context, of *policed, permit schedule.Permit) error {
	var policy refitv1.ChangeManagementPolicy
	if err := m.Get(ctx, of.policy, &policy); err != nil {
		return err
	}
	before := policy.DeepCopy()
	permit.Recurrence = "FREQ=DAILY"
	policy.Spec.MaintenanceSchedule.Permit = []schedule.Permit{permit}
	if err := m.Patch(ctx, &policy, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("open policy %s: %w", of.policy, err)
	}
	return nil
}

// always is a window that is always open.
var always = schedule.Permit{StartTime: "00:00", Duration: "24h"}

// starting opens a policy by what open does, which returns since when it is, and prints how soon its updates have started, and what that has cost some of
// the replicas.
func (b *bench) starting(ctx context.Context, what string, those servers, policy int, open func(*policed) (time.Time, error)) error {
	of := b.f.policed[policy]
	s, err := b.m.watchStarts(ctx, of)
	if err != nil {
		return err
	}
	defer s.stop()
	before := those.since(cost{})
	since, err := open(of)
	if err != nil {
		return err
	}
	text, err := s.await(ctx, since)
	if err != nil {
		return err
	}
	b.line(ctx, what, those.since(before), join(text, b.darkness()))
	return nil
}

// edit has a policy be open from now on.
func (b *bench) edit(ctx context.Context, of *policed) (time.Time, error) {
	began := time.Now()
	return began, b.m.open(ctx, of, always)
}

func (b *bench) edited(ctx context.Context, _ *callers) error {
	return b.starting(ctx, "a policy is edited", b.s, editedAlone, func(of *policed) (time.Time, error) { return b.edit(ctx, of) })
}

// besideDark opens the policies of the dark nodes, and then another one, while all of the places are taken that dark nodes can take.
func (b *bench) besideDark(ctx context.Context, _ *callers) error {
	if b.o.dark == 0 {
		return nil
	}
	before, began := b.s.since(cost{}), time.Now()
	g, ctxOf := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for _, of := range b.f.darkened {
		g.Go(func() error { return b.m.open(ctxOf, of, always) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	most, err := b.darkest(ctx, began)
	if err != nil {
		return err
	}
	b.line(ctx, "those of dark nodes are edited", b.s.since(before), fmt.Sprintf("after %.1f s %d are dialled at once", time.Since(began).Seconds(), most))
	return b.starting(ctx, "another one is edited at that moment", b.s, editedBesideDark, func(of *policed) (time.Time, error) { return b.edit(ctx, of) })
}

// darkest waits until no more dark nodes are dialled than a second ago, and returns how many are.
func (b *bench) darkest(ctx context.Context, began time.Time) (int64, error) {
	for last := int64(0); time.Since(began) < time.Minute; {
		if err := pause(ctx, time.Second); err != nil {
			return 0, err
		}
		now := b.f.nodes.now.Load()
		if now > 0 && now <= last {
			return now, nil
		}
		last = now
	}
	return 0, errors.New("no dark node was dialled a minute after its policy was opened")
}

// darkness tells how many dark nodes are dialled now, and how often that was done.
func (b *bench) darkness() string {
	if b.f.nodes.dials.Load() == 0 {
		return ""
	}
	return fmt.Sprintf("%d dark nodes are dialled, and were %d times", b.f.nodes.now.Load(), b.f.nodes.dials.Load())
}

// byClock has a window open in a minute or two, beside the dark nodes.
func (b *bench) byClock(ctx context.Context, _ *callers) error {
	return b.starting(ctx, "a window opens", b.s, openedByClock, func(of *policed) (time.Time, error) {
		edge := time.Now().UTC().Truncate(time.Minute).Add(2 * time.Minute)
		return edge, b.m.open(ctx, of, schedule.Permit{StartTime: edge.Format("15:04"), Duration: "8h"})
	})
}

// killed ends the replica that a policy's namespace belongs to, as a crash does, and edits the policy. A replica that is alone is started again at once.
func (b *bench) killed(ctx context.Context) error {
	first, err := b.s.holder(ctx, b.f.policed[editedAtKill].policy.Namespace)
	if err != nil {
		return err
	}
	others := b.s.without(first) // what a process has cost that is no more is not known
	err = b.starting(ctx, "one is killed, and a policy edited", others, editedAtKill, func(of *policed) (time.Time, error) {
		began := time.Now()
		if err := first.kill(); err != nil {
			return began, err
		}
		if err := b.m.open(ctx, of, always); err != nil {
			return began, err
		}
		if len(others) == 0 {
			return began, first.start(ctx)
		}
		if err := others.awaitShards(ctx, first.shards); err != nil {
			return began, err
		}
		say(b.out, "  the others have its shards after %.1f s", time.Since(began).Seconds())
		return began, nil
	})
	if err != nil {
		return err
	}
	if len(others) > 0 {
		if err := first.start(ctx); err != nil {
			return err
		}
	}
	b.line(ctx, "and is started again", b.s.since(cost{}), fmt.Sprintf("ready after %.1f s", first.readyAfter.Seconds()))
	return nil
}
