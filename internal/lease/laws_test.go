package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// contender is a process that wants the node, with its own clock.
type contender struct {
	name    string
	machine types.UID
	clock   *clocktesting.FakeClock
	rate    float64
	locker  *Locker
	held    []*Held // the last one is the one it works with
}

// contest is several of them at one node.
type contest struct {
	*workload
	t          *rapid.T
	contenders []*contender
	tokens     []int64 // in the order of the acquisitions
	// newest is the last acquisition for each Machine. Those before it are deposed: instances of one refit elect a leader, and
	// the token is for the time until that is known.
	newest map[types.UID]*Held
	nested bool
	busy   *Held // writes, so that it can't do so again
	// deletions reports whether leases are deleted and stolen: against that only the token helps.
	deletions bool
}

func newContest(t *rapid.T, deletions bool) *contest {
	c := &contest{workload: newWorkload(t), t: t, deletions: deletions, newest: map[types.UID]*Held{}}
	// The first two are of two management clusters, the third is another instance of the first.
	for i, machine := range []types.UID{"one", "two", "one"} {
		skew := time.Duration(rapid.IntRange(-25, 25).Draw(t, "skew")) * time.Second
		p := &contender{
			name: fmt.Sprintf("p%d", i), machine: machine, clock: clocktesting.NewFakeClock(start.Add(skew)),
			rate: rapid.SampledFrom([]float64{0.96, 1, 1.04}).Draw(t, "rate"),
		}
		p.start(c.workload)
		c.contenders = append(c.contenders, p)
	}
	return c
}

// start begins a process: it remembers nothing. Its clock is checked elsewhere, so that the server's is taken for right here.
func (p *contender) start(w *workload) {
	p.held = nil
	p.locker = &Locker{Client: w.client(p.clock.Now), Clock: p.clock, Observer: NewObserver(10), Instance: p.name}
}

func (p *contender) request() Request {
	return Request{Facts: func(context.Context) (Facts, error) {
		return Facts{testMachine(p.machine), &clusterv1.Cluster{}}, nil
	}}
}

func (c *contest) step() {
	p := c.contenders[rapid.IntRange(0, len(c.contenders)-1).Draw(c.t, "who")]
	which := func() *Held { return p.held[rapid.IntRange(0, len(p.held)-1).Draw(c.t, "which")] }
	what := rapid.SampledFrom([]string{"acquire", "acquire", "renew", "renew", "release", "restart", "wait", "wait", "delete", "steal"}).Draw(c.t, "what")
	switch {
	case what == "wait" && !c.nested:
		d := time.Duration(rapid.IntRange(1, 900).Draw(c.t, "seconds")) * time.Second
		for _, p := range c.contenders {
			p.clock.Step(time.Duration(float64(d) * p.rate))
		}
	case what == "acquire":
		c.acquire(p)
	case what == "renew" && len(p.held) > 0:
		c.writing(which(), c.renew)
	case what == "release" && len(p.held) > 0:
		c.writing(which(), func(h *Held) {
			c.meanwhile(func() { _ = h.Release(context.Background()) })
		})
	case what == "restart":
		p.start(c.workload)
	case what == "delete" && c.deletions:
		c.remove(nodeKey)
	case what == "steal" && c.deletions && c.get(nodeKey) != nil:
		w := &world{workload: c.workload}
		w.foreign("node-maintenance", p.clock.Now(), 60)
	}
}

// writing lets a Held write unless it is in the middle of that.
func (c *contest) writing(h *Held, write func(*Held)) {
	if h == c.busy {
		return
	}
	if !c.nested {
		c.busy = h
		defer func() { c.busy = nil }()
	}
	write(h)
}

func (c *contest) acquire(p *contender) {
	var h *Held
	var err error
	c.meanwhile(func() { h, err = p.locker.Acquire(context.Background(), p.request()) })
	if err != nil {
		require.Nil(c.t, h)
		return
	}
	require.NotContains(c.t, c.tokens, h.Token(), "no two have the same token")
	for _, other := range p.held {
		require.Greater(c.t, h.Token(), other.Token(), "a token never decreases")
	}
	c.tokens = append(c.tokens, h.Token())
	p.held = append(p.held, h)
	c.newest[p.machine] = h
}

// renew renews a lease. Who can do that is the one who has acquired it last.
func (c *contest) renew(h *Held) {
	lostBefore := errors.Is(h.Allows(false), ErrLost)
	var err error
	token, newest := h.Token(), int64(0)
	c.meanwhile(func() { err = h.Renew(context.Background()) })
	for _, one := range c.tokens {
		newest = max(newest, one)
	}
	if err == nil {
		require.False(c.t, lostBefore, "what is lost stays lost")
		require.Equal(c.t, newest, h.Token())
	}
	require.Equal(c.t, token, h.Token())
}

// meanwhile does something, and perhaps lets another act, or the network fail, before a write of it.
func (c *contest) meanwhile(do func()) {
	if c.nested {
		do()
		return
	}
	between := rapid.SampledFrom([]string{"nothing", "nothing", "another", "failure", "no answer"}).Draw(c.t, "meanwhile")
	c.fail = func(verb string, _ client.Object) error {
		if verb != "create" && verb != "update" || between == "nothing" || c.mute {
			return nil
		}
		c.fail = nil
		if between == "failure" {
			return errAway
		}
		c.nested = true
		defer func() { c.nested = false }()
		c.step()
		return nil
	}
	c.mute = between == "no answer"
	do()
	c.fail, c.mute = nil, false
}

func (c *contest) exclusive() {
	working := 0
	for _, h := range c.newest {
		if h.Allows(true) == nil {
			working++
		}
	}
	require.LessOrEqual(c.t, working, 1, "two may start something on the node")
}

// TestExclusive: of those who follow the protocol and have no leader in common, never two may start something that disturbs, and
// of all acquisitions only the last one can be renewed. Clocks are apart, run at different rates, and processes forget.
func TestExclusive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newContest(t, false)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c.step()
			c.exclusive()
		}
	})
}

// TestFenced: whatever happens to the lease, tokens are unique and grow, and only the last acquisition can be renewed.
func TestFenced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newContest(t, true)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c.step()
		}
	})
}

// TestRace: of two who want a free node at the same time one has it.
func TestRace(t *testing.T) {
	w := newWorkload(t)
	clock := clocktesting.NewFakeClock(start)
	var contenders []*contender
	for i, machine := range []types.UID{"one", "two"} {
		p := &contender{name: fmt.Sprintf("p%d", i), machine: machine, clock: clock}
		p.start(w)
		contenders = append(contenders, p)
	}
	observer, last, won := contenders[0].locker.Observer, int64(0), map[int]int{}
	contenders[1].locker.Observer = observer // as of one process
	for range raceRounds {
		var wg sync.WaitGroup
		held, errs := make([]*Held, 2), make([]error, 2)
		for i, p := range contenders {
			wg.Go(func() { held[i], errs[i] = p.locker.Acquire(context.Background(), p.request()) })
		}
		wg.Wait()
		for i := range held {
			if held[i] == nil {
				var e *HeldError
				require.ErrorAs(t, errs[i], &e)
				require.NotNil(t, held[1-i], "somebody has it")
				continue
			}
			won[i]++
			require.Nil(t, held[1-i], "both have it")
			require.Greater(t, held[i].Token(), last)
			last = held[i].Token()
			require.NoError(t, held[i].Release(context.Background()))
		}
	}
	require.Equal(t, raceRounds, won[0]+won[1])
}
