package workload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// replicas are API servers behind one address, of which each connection finds the next. Those that are found while hanging is true accept
// requests and answer none.
type replicas struct {
	*httptest.Server

	mu      sync.Mutex
	hanging bool
	found   map[string]bool // whether it hangs
	by      []string        // the connections of the answers
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	s := &replicas{found: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/late":
			w.WriteHeader(http.StatusGatewayTimeout)
		case s.hangs(r.RemoteAddr):
			<-r.Context().Done()
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *replicas) hangs(conn string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.found[conn]; !found {
		s.found[conn] = s.hanging
	}
	if !s.found[conn] {
		s.by = append(s.by, conn)
	}
	return s.found[conn]
}

// hang has the connections that come from now on hang, or no longer.
func (s *replicas) hang(hanging bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = hanging
}

// answered are the connections of the answers, in order.
func (s *replicas) answered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.by)
}

// connections is how many there were.
func (s *replicas) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.found)
}

// client is one as refit has it, but for how long it waits.
func (s *replicas) client(t *testing.T, timeout, patience time.Duration) *http.Client {
	t.Helper()
	cfg := &rest.Config{Host: s.URL, Timeout: timeout, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	reconnecting(cfg, patience)
	c, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	return c
}

func get(t *testing.T, c *http.Client, url string) error {
	t.Helper()
	response, err := c.Get(url)
	if err == nil {
		require.Equal(t, 2, response.ProtoMajor)
		require.NoError(t, response.Body.Close())
	}
	return err
}

// answers asks until there is an answer. A transport may find out only by a request that its connection was closed.
func (s *replicas) answers(t *testing.T, c *http.Client) {
	t.Helper()
	var err error
	for range 5 {
		if err = get(t, c, s.URL); err == nil {
			return
		}
	}
	require.NoError(t, err)
}

func TestAnAPIServerThatHangsIsLeft(t *testing.T) {
	s := newReplicas(t)
	s.hang(true)
	c := s.client(t, time.Second, 50*time.Millisecond)
	for s.connections() == 0 { // a busy machine may need longer to connect
		require.Error(t, get(t, c, s.URL))
	}
	s.hang(false)
	c.Timeout = time.Minute // the other one may take its time
	s.answers(t, c)
	s.answers(t, c)
	by := s.answered()
	require.Equal(t, by[len(by)-1], by[len(by)-2], "refit stays with the one that answers")
}

func TestAnAnswerThatItIsTooLateIsNone(t *testing.T) {
	s := newReplicas(t)
	c := s.client(t, time.Minute, 0)
	s.answers(t, c)
	require.NoError(t, get(t, c, s.URL+"/late"))
	s.answers(t, c)
	require.Equal(t, 2, s.connections())
}

// transport is one that a test makes.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnAPIServerThatAnswersSomeIsNotLeft(t *testing.T) {
	answer := func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil }
	for name, tc := range map[string]struct {
		err       error
		meanwhile transport
		patience  time.Duration
		left      bool
	}{
		"no answer":                      {err: context.DeadlineExceeded, left: true},
		"no answer, and none to others":  {err: context.DeadlineExceeded, meanwhile: func(*http.Request) (*http.Response, error) { return nil, errAway }, left: true},
		"no answer, but one to others":   {err: context.DeadlineExceeded, meanwhile: answer},
		"no answer, but no time for one": {err: context.DeadlineExceeded, patience: time.Minute},
		"no longer asked":                {err: context.Canceled},
		"refused":                        {err: errAway},
	} {
		t.Run(name, func(t *testing.T) {
			left := false
			r := &reconnect{patience: tc.patience, closeAll: func() { left = true }}
			ask := func(next transport) {
				r.next = next
				_, _ = r.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)) //nolint:bodyclose // there is none
			}
			ask(answer) // which was before
			ask(func(*http.Request) (*http.Response, error) {
				if tc.meanwhile != nil {
					ask(tc.meanwhile)
				}
				return nil, tc.err
			})
			require.Equal(t, tc.left, left)
		})
	}
}

func TestClientsOfAKubeconfigReconnect(t *testing.T) {
	server := newAPIServer(t)
	k, err := fromKubeconfig(server.kubeconfig(t, "one", nil), "refit/test")
	require.NoError(t, err)
	found := false
	for rt := k.http.Transport; !found; {
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		require.True(t, ok, "%T", rt)
		_, found = rt.(*reconnect)
		rt = wrapper.WrappedRoundTripper()
	}
}
