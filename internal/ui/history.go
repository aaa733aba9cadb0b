package ui

import (
	"sync"
	"time"

	"k8s.io/utils/lru"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// historyMachines is of how many Machines is remembered what their updates did.
	historyMachines = 1000
	// historySights is how much of each.
	historySights = 60
)

// sight is how an update stood since an instant.
type sight struct {
	at                           time.Time
	phase, reason, step, message string
}

// history remembers what was seen of updates while the page was served: a status says what is, and not what was.
type history struct {
	mu   sync.Mutex
	seen *lru.Cache
}

func newHistory() *history { return &history{seen: lru.New(historyMachines)} }

// see takes down how an update stands if that is another way than before. Without before it is what was found when the page began, which is no news.
func (h *history) see(before, now *refitv1.MachineUpdate, at time.Time) {
	if before != nil && before.UID != now.UID { // that this one was made is no news, either
		h.forget(before)
		return
	}
	if before == nil || sightOf(before) == sightOf(now) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was, _ := h.seen.Get(now.UID)
	sights, _ := was.([]sight)
	next := sightOf(now)
	next.at = at
	sights = append(sights[max(0, len(sights)-historySights+1):len(sights):len(sights)], next)
	h.seen.Add(now.UID, sights)
}

// of returns what was seen of an update, in order.
func (h *history) of(mu *refitv1.MachineUpdate) []sight {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, _ := h.seen.Get(mu.UID)
	sights, _ := was.([]sight)
	return sights
}

// forget drops what was seen of an update that is gone. A Machine of the same name has another one, whose history is its own.
func (h *history) forget(mu *refitv1.MachineUpdate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.Remove(mu.UID)
}

func sightOf(mu *refitv1.MachineUpdate) sight {
	s := &mu.Status
	return sight{phase: string(s.Phase), reason: s.Reason, step: s.Step, message: s.Message}
}
