package ui

import "sync"

// maxListeners is how many pages may wait for news at once. More ask from time to time.
const maxListeners = 16

// hub tells pages that something has changed.
type hub struct {
	mu        sync.Mutex
	listeners map[chan struct{}]bool
}

// listen returns a channel on which there is something after a change, and what ends that. It is not ok if as many listen as may.
func (h *hub) listen() (news <-chan struct{}, end func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) >= maxListeners {
		return nil, nil, false
	}
	if h.listeners == nil {
		h.listeners = map[chan struct{}]bool{}
	}
	one := make(chan struct{}, 1)
	h.listeners[one] = true
	return one, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, one)
	}, true
}

// tell tells those that listen. It waits for nobody: who has not yet looked at the last news will see this one with it.
func (h *hub) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.listeners {
		select {
		case one <- struct{}{}:
		default:
		}
	}
}
