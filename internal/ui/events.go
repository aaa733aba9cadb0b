package ui

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// newsEvery is how often a page is told of changes at most.
	newsEvery = time.Second
	// stillThere is how often a page is told that there are none, so that it is seen when it has gone.
	stillThere = 15 * time.Second
	// newsTimeout is how long a page may take to read what it is told.
	newsTimeout = 10 * time.Second
)

// serveEvents tells a page, by server-sent events, that something has changed. What, it asks then: so nobody is told what is old already.
func (f *Fleet) serveEvents(w http.ResponseWriter, r *http.Request) {
	news, end, ok := f.hub.listen()
	if !ok {
		w.Header().Set("Retry-After", "30")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages listen already; this one asks from time to time.", maxListeners))
		return
	}
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	tell := func(text string) bool {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(newsTimeout)) // a connection without deadlines has none to set
		_, err := w.Write([]byte(text))
		return err == nil && c.Flush() == nil
	}
	idle := time.NewTicker(stillThere)
	defer idle.Stop()
	pause := time.NewTicker(newsEvery)
	defer pause.Stop()
	for told := tell(f.news()); told; {
		select {
		case <-r.Context().Done():
			return
		case <-idle.C:
			told = tell(":\n\n")
		case <-news:
			select {
			case <-r.Context().Done():
				return
			case <-pause.C:
				told = tell(f.news())
			}
		}
	}
}

// news is how much has changed.
func (f *Fleet) news() string { return fmt.Sprintf("data: %d\n\n", f.changes.Load()) }
