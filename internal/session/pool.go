// Package session runs what talks to nodes and to workload clusters beside a work queue, whose workers it would keep: a node that is dark
// takes seconds to find so, and an update is followed for minutes.
package session

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-refit/refit/internal/shard"
)

// Pool bounds the sessions that run at once: those of all clusters, and those of each, so that a cluster whose nodes are dark delays no
// other. Clusters take turns. Within a cluster those come first that are urgent, and then those that have waited longest.
//
// A session that finds no room is not kept, since what it was made from would be old when there is: its key is woken when it has a place, and
// begins again. A Pool runs sessions while Start runs, as a manager has it do in the leader.
type Pool struct {
	// Most is how many sessions run at once, and MostOfCluster how many of one cluster.
	Most, MostOfCluster int
	// Wake has the owner of a key look again: there is a place for it, or somebody has asked for it while its session ran. It must not block.
	Wake func(key types.NamespacedName)

	mu       sync.Mutex
	base     context.Context //nolint:containedctx // that of the process, for what outlasts the reconciliation that began it
	running  sync.WaitGroup
	sessions map[types.NamespacedName]*session
	clusters map[types.NamespacedName]*cluster
	turns    []*cluster // those in which somebody waits, the next one first
	taken    int        // places of all clusters
}

// session is what is known of a key that waits, has a place, or runs.
type session struct {
	cluster *cluster
	state   state
	// asked reports that the key was asked for while its session ran, and urgent that it waits among those that are.
	asked, urgent bool
}

type state int

const (
	waits state = iota
	placed
	runs
)

// cluster is where places are counted. It is there while one of its sessions is.
type cluster struct {
	key    types.NamespacedName
	taken  int
	urgent []types.NamespacedName
	others []types.NamespacedName
}

// Start implements manager.Runnable. It returns when all sessions have ended, which the end of ctx tells them to.
func (p *Pool) Start(ctx context.Context) error {
	p.mu.Lock()
	p.base = ctx
	woken := p.place()
	p.mu.Unlock()
	p.wake(woken)
	<-ctx.Done()
	p.mu.Lock()
	p.base = nil // none begins any more
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

// Begin runs a session of a cluster for a key, and returns true, if there is a place for it. Otherwise the key waits for one, and is woken.
// The session's context has the values of ctx.
func (p *Pool) Begin(ctx context.Context, of, key types.NamespacedName, urgent bool, run func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[key]
	if s == nil {
		s = p.add(of, key)
		if !s.cluster.waits() && p.room(s.cluster) {
			p.take(s)
		} else {
			p.await(s, key, urgent)
		}
	}
	if s.state == waits && urgent && !s.urgent {
		s.urgent = true
		s.cluster.others = slices.DeleteFunc(s.cluster.others, func(k types.NamespacedName) bool { return k == key })
		s.cluster.urgent = append(s.cluster.urgent, key)
	}
	if s.state != placed || p.base == nil {
		return false
	}
	s.state = runs
	base := p.base
	ctx, leave := shard.Extend(context.WithoutCancel(ctx))
	p.running.Go(func() {
		defer p.end(key)
		defer leave()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(base, cancel)()
		run(ctx)
	})
	return true
}

// Running reports whether a session runs for a key, which is woken then when that has ended.
func (p *Pool) Running(key types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[key]
	if s == nil || s.state != runs {
		return false
	}
	s.asked = true
	return true
}

// Forgo gives back the place that a key has and makes no use of.
func (p *Pool) Forgo(key types.NamespacedName) {
	p.mu.Lock()
	var woken []types.NamespacedName
	if s := p.sessions[key]; s != nil && s.state == placed {
		woken = p.remove(key, s)
	}
	p.mu.Unlock()
	p.wake(woken)
}

// Load returns how many sessions run or are about to, and how many keys wait for a place.
func (p *Pool) Load() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.sessions) - p.taken
}

func (p *Pool) end(key types.NamespacedName) {
	p.mu.Lock()
	s := p.sessions[key]
	woken := p.remove(key, s)
	if s.asked {
		woken = append(woken, key)
	}
	p.mu.Unlock()
	p.wake(woken)
}

func (p *Pool) wake(keys []types.NamespacedName) {
	for _, key := range keys {
		p.Wake(key)
	}
}

func (p *Pool) add(of, key types.NamespacedName) *session {
	if p.sessions == nil {
		p.sessions, p.clusters = map[types.NamespacedName]*session{}, map[types.NamespacedName]*cluster{}
	}
	c := p.clusters[of]
	if c == nil {
		c = &cluster{key: of}
		p.clusters[of] = c
	}
	s := &session{cluster: c}
	p.sessions[key] = s
	return s
}

func (p *Pool) room(c *cluster) bool {
	return p.base != nil && p.taken < p.Most && c.taken < p.MostOfCluster
}

func (p *Pool) take(s *session) {
	s.state = placed
	s.cluster.taken++
	p.taken++
}

func (p *Pool) await(s *session, key types.NamespacedName, urgent bool) {
	c := s.cluster
	if !c.waits() {
		p.turns = append(p.turns, c)
	}
	if s.urgent = urgent; urgent {
		c.urgent = append(c.urgent, key)
	} else {
		c.others = append(c.others, key)
	}
}

// remove forgets a key that has a place, and returns those that have one now.
func (p *Pool) remove(key types.NamespacedName, s *session) (woken []types.NamespacedName) {
	delete(p.sessions, key)
	s.cluster.taken--
	p.taken--
	p.forget(s.cluster)
	return p.place()
}

func (p *Pool) forget(c *cluster) {
	if c.taken == 0 && !c.waits() {
		delete(p.clusters, c.key)
	}
}

// place gives places to keys that wait, a cluster at a time, and returns the keys.
func (p *Pool) place() (woken []types.NamespacedName) {
	for full := 0; full < len(p.turns) && p.base != nil && p.taken < p.Most; {
		c := p.turns[0]
		p.turns = p.turns[1:]
		if !p.room(c) {
			p.turns = append(p.turns, c)
			full++
			continue
		}
		full = 0
		key := c.next()
		p.take(p.sessions[key])
		woken = append(woken, key)
		if c.waits() {
			p.turns = append(p.turns, c)
		}
	}
	return woken
}

// waits reports whether somebody waits for a place.
func (c *cluster) waits() bool { return len(c.urgent)+len(c.others) > 0 }

func (c *cluster) next() types.NamespacedName {
	list := &c.urgent
	if len(*list) == 0 {
		list = &c.others
	}
	key := (*list)[0]
	*list = (*list)[1:]
	return key
}
