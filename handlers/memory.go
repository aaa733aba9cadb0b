package handlers

import (
	"context"
	"crypto/sha256"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/capi-refit/refit/internal/inplace"
)

const (
	// mostRemembered bounds the requests that are remembered, and largestRemembered their size in bytes. What was decoded of one takes some eight
	// times that: 64 MiB together at the most.
	mostRemembered    = 128
	largestRemembered = 64 << 10
	// rememberedFor is for how long a verdict is what a request is answered by. An updater that is not refit's own may look at more than policies.
	rememberedFor = 10 * time.Second
)

// Basis is what a verdict rests on beside the request.
type Basis interface {
	// Basis returns what changes when the updaters for a machine, or what they are made from, do.
	Basis(ctx context.Context, s inplace.Subject) (string, error)
}

// memory has the verdicts on requests that were made a moment ago: Cluster API's controllers ask the same again whenever they look. Nothing is
// decided by it but what a change is; policies are asked about it each time.
type memory struct {
	basis Basis
	clock clock.PassiveClock
	known *lru.Cache
}

type digest [sha256.Size]byte

type remembered struct {
	*verdict
	at time.Time
}

// newMemory returns the memory of an engine; nil, which remembers nothing, if it can't be told what its updaters rest on.
func newMemory(e *Engine, now clock.PassiveClock) *memory {
	if _, ok := e.updaters.(Basis); !ok {
		return nil
	}
	return &memory{basis: engineBasis{e}, clock: now, known: lru.New(mostRemembered)}
}

// recall returns the verdict on a request, and else the key to remember it by.
func (m *memory) recall(ctx context.Context, kind string, body []byte) (v *verdict, key digest) {
	if m == nil || len(body) > largestRemembered {
		return nil, key
	}
	key = digestOfRequest(kind, body)
	value, ok := m.known.Get(key)
	if !ok {
		return nil, key
	}
	r := value.(remembered)
	if age := m.clock.Since(r.at); age < 0 || age > rememberedFor {
		return nil, key
	}
	if basis, err := m.basis.Basis(ctx, r.subject); err != nil || basis != r.basis {
		return nil, key
	}
	return r.verdict, key
}

func digestOfRequest(kind string, body []byte) digest {
	h := sha256.New()
	_, _ = h.Write([]byte(kind))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(body)
	return digest(h.Sum(nil))
}

// remember keeps a verdict, if what it rests on was known before it was made, and is the same after that.
func (m *memory) remember(ctx context.Context, key digest, v *verdict) {
	if m == nil || key == (digest{}) {
		return
	}
	if basis, err := m.basis.Basis(ctx, v.subject); err == nil && basis == v.basis {
		m.known.Add(key, remembered{v, m.clock.Now()})
	}
}
