package cli

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
)

// serverClock tells the time of an API server, to a second, by its last answer: the clock of who asks may be wrong. Until it has answered that clock counts.
type serverClock struct {
	own   clock.PassiveClock
	mu    sync.Mutex
	ahead time.Duration // the server's
}

// Now implements clock.PassiveClock.
func (s *serverClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own.Now().Add(s.ahead)
}

// Since implements clock.PassiveClock.
func (s *serverClock) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// follow has the clock follow what answers to a transport say.
func (s *serverClock) follow(next http.RoundTripper) http.RoundTripper {
	return following{next, s}
}

type following struct {
	http.RoundTripper
	clock *serverClock
}

var _ transport.WrapperFunc = (&serverClock{}).follow

// RoundTrip implements http.RoundTripper.
func (f following) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := f.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		f.clock.mu.Lock()
		f.clock.ahead = at.Sub(f.clock.own.Now())
		f.clock.mu.Unlock()
	}
	return response, nil
}
