package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// bench is what measures a fleet, and prints a line for each thing that it has measured.
type bench struct {
	o   options
	m   *management
	f   *fleet
	s   servers
	out io.Writer

	before served // until the line before
}

// measure measures all, one thing after the other: each leaves the fleet as the next one needs it.
func (b *bench) measure(ctx context.Context) error {
	say(b.out, "| what | RSS MiB (most) | CPU %% of a core | API requests/s | |\n|---|---|---|---|---|")
	var err error
	if b.before, err = b.m.served(ctx); err != nil {
		return err
	}
	idle, err := b.s.cost(ctx, b.o.steady/2)
	if err != nil {
		return err
	}
	b.line(ctx, "idle", idle, fmt.Sprintf("ready after %.1f s", b.s[0].readyAfter.Seconds()))
	calls := b.s.call(ctx, b.f, b.o.connections)
	defer calls.stop()
	for _, part := range []func(context.Context, *callers) error{b.waiting, b.edited, b.besideDark, b.byClock} {
		if err := part(ctx, calls); err != nil {
			return errors.Join(err, calls.err())
		}
	}
	calls.stop()
	if err := calls.err(); err != nil {
		return err
	}
	alone, err := b.s.cost(ctx, b.o.steady)
	if err != nil {
		return err
	}
	b.line(ctx, "dark nodes are tried, nobody calls", alone, b.darkness())
	return b.killed(ctx)
}

func (b *bench) line(ctx context.Context, what string, c cost, more string) {
	say(b.out, "| %s | %.0f (%.0f) | %.1f | %.1f | %s |", what, c.rss, c.mostRSS, c.cpu, c.requests, more)
	if now, err := b.m.served(ctx); err == nil {
		say(b.out, "  a second, of everybody: %s", now.since(b.before))
		b.before = now
	}
}

// waiting asks for all updates, and measures what it takes that they wait.
func (b *bench) waiting(ctx context.Context, calls *callers) error {
	before, began := b.s.since(cost{}), time.Now()
	if err := b.s.awaitWaiting(ctx, b.out, b.o.machines); err != nil {
		return err
	}
	b.line(ctx, "all are asked for", b.s.since(before), fmt.Sprintf("all wait after %.0f s; %s", time.Since(began).Seconds(), calls.take()))
	settling, err := b.s.cost(ctx, b.o.settle)
	if err != nil {
		return err
	}
	b.line(ctx, "all wait, and statuses come to rest", settling, calls.take().String())
	waiting, err := b.s.cost(ctx, b.o.steady)
	if err != nil {
		return err
	}
	b.line(ctx, "waiting, Cluster API calls", waiting, calls.take().String())
	return calls.without(func() error {
		alone, err := b.s.cost(ctx, b.o.steady)
		if err == nil {
			b.line(ctx, "waiting, nobody calls", alone, "")
			err = b.floor(ctx)
		}
		return err
	})
}

// join joins what is told of one thing.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}
