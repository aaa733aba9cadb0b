package handlers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/capi-refit/refit/internal/inplace"
)

const (
	// mostRemembered bounds the requests that are remembered, and as many changes, and largestRemembered the size of each in bytes. What was decoded
	// of one takes some eight times that: 128 MiB together at the most.
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

// memory has the verdicts on requests that were made a moment ago: Cluster API's controllers ask the same again whenever they look. And it has what was
// decided about changes: those of a fleet's machines are the same, though their names are not. Nothing is decided by it but what a change is; policies
// are asked about it each time.
type memory struct {
	basis   Basis
	clock   clock.PassiveClock
	known   *lru.Cache // remembered requests
	changes *lru.Cache // settled changes
}

type digest [sha256.Size]byte

type remembered struct {
	*verdict
	at   time.Time
	said atomic.Pointer[string] // what was logged last about the request
}

// settled is what was decided about a change.
type settled struct {
	outcome
	basis string
	at    time.Time
}

// newMemory returns the memory of an engine; nil, which remembers nothing, if it can't be told what its updaters rest on.
func newMemory(e *Engine, now clock.PassiveClock) *memory {
	if _, ok := e.updaters.(Basis); !ok {
		return nil
	}
	return &memory{basis: engineBasis{e}, clock: now, known: lru.New(mostRemembered), changes: lru.New(mostRemembered)}
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
	r := value.(*remembered)
	if !m.fresh(r.at) {
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

// remember keeps a verdict, if what it rests on was known before it was made, and is the same after that; and what it says of the change, if that was
// decided for it, and is refit's own. A key of nothing has that not kept.
func (m *memory) remember(ctx context.Context, request, change digest, v *verdict) {
	if v.foreign {
		change = digest{}
	}
	if m == nil || request == (digest{}) && change == (digest{}) {
		return
	}
	basis, err := m.basis.Basis(ctx, v.subject)
	if err != nil || basis != v.basis {
		return
	}
	now := m.clock.Now()
	if request != (digest{}) {
		m.known.Add(request, &remembered{verdict: v, at: now})
	}
	if change != (digest{}) {
		m.changes.Add(change, &settled{outcome: v.outcome, basis: basis, at: now})
	}
}

// said reports whether a text is what was logged last about a request that is remembered, and notes it.
func (m *memory) said(key digest, text string) bool {
	if m == nil {
		return false
	}
	value, ok := m.known.Get(key)
	if !ok {
		return false
	}
	last := value.(*remembered).said.Swap(&text)
	return last != nil && *last == text
}

func (m *memory) fresh(at time.Time) bool {
	age := m.clock.Since(at)
	return age >= 0 && age <= rememberedFor
}

// recallChange has a verdict say what was decided about the same change of a machine with the same updaters, and reports whether that is known. Else it
// returns the key to remember it by.
func (m *memory) recallChange(v *verdict, l layout) (key digest, known bool) {
	if m == nil {
		return key, false
	}
	key, ok := digestOfChange(v, l)
	if !ok {
		return key, false
	}
	value, ok := m.changes.Get(key)
	if !ok {
		return key, false
	}
	s := value.(*settled)
	if !m.fresh(s.at) || s.basis != v.basis {
		return key, false
	}
	v.outcome = s.outcome
	return key, true
}

// digestOfChange returns a digest of all that refit's own updaters decide by beside the policies: the kinds, the version of Kubernetes, and the specs that
// differ. It is none if these are too large to be kept.
func digestOfChange(v *verdict, l layout) (d digest, ok bool) {
	h, size := sha256.New(), 0
	write := func(texts ...string) {
		for _, text := range texts {
			_, _ = fmt.Fprintf(h, "%d:%s", len(text), text)
		}
	}
	write(strconv.FormatBool(v.template), v.subject.Version)
	for i, m := range l {
		current, desired := v.current[m.object], v.desired[i]
		write(current.apiVersion, current.kind, desired.apiVersion, desired.kind)
		if current.spec != desired.spec {
			write(current.spec, desired.spec)
			size += len(current.spec) + len(desired.spec)
		}
	}
	if size > largestRemembered {
		return d, false
	}
	return digest(h.Sum(nil)), true
}
