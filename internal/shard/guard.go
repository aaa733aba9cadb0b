package shard

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// guard is the lock of an election that, once it is won, can't be won again. client-go goes on trying for a while when it finds that another has the
// Lease, as after a sleep, and takes one that it gets back for one that it never lost.
type guard struct {
	resourcelock.Interface
	// lost is called once, as soon as it is seen that the Lease was another's.
	lost func(why error)
	// expired reports whether a Lease that another holds is known not to have been renewed for its duration. Nil: that is not known.
	expired func(*resourcelock.LeaderElectionRecord) bool

	won, gone   bool
	transitions int
}

// Get implements resourcelock.Interface.
func (g *guard) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if g.gone {
		return nil, nil, g.over()
	}
	record, raw, err := g.Interface.Get(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case g.won && (record.HolderIdentity != g.Identity() || record.LeaderTransitions != g.transitions):
		g.gone = true
		g.lost(fmt.Errorf("Lease %s was acquired by another: %q holds it now", g.Describe(), record.HolderIdentity)) //nolint:staticcheck // a kind's name
		return nil, nil, g.over()
	case !g.won && g.expired != nil && g.expired(record):
		record.HolderIdentity = "" // it has been waited for long enough; that it is as it was is what the write makes sure
	}
	return record, raw, nil
}

func (g *guard) over() error { return fmt.Errorf("Lease %s was lost", g.Describe()) } //nolint:staticcheck // a kind's name

// Create implements resourcelock.Interface.
func (g *guard) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return g.write(record, func() error { return g.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (g *guard) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return g.write(record, func() error { return g.Interface.Update(ctx, record) })
}

func (g *guard) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	if g.gone {
		return g.over()
	}
	if err := write(); err != nil {
		return err
	}
	if record.HolderIdentity != "" && !g.won {
		g.won, g.transitions = true, record.LeaderTransitions
	}
	return nil
}
