package ui

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/ui/uitest"
)

// listen returns what a page is told.
func listen(t *testing.T, url string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req) //nolint:bodyclose // it is closed where it is read
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	told, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = res.Body.Close() }()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				told <- data
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return told
}

func next(t *testing.T, told <-chan string) string {
	t.Helper()
	select {
	case news := <-told:
		return news
	case <-time.After(patience):
		require.Fail(t, "the page is told nothing")
		return ""
	}
}

func serving(t *testing.T, f *Fleet) string {
	t.Helper()
	server := httptest.NewServer(f.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return server.URL
}

func TestPagesAreToldOfChanges(t *testing.T) {
	c := uitest.New(uitest.Fleet()...)
	f := watching(t, c)
	told := listen(t, serving(t, f))
	before := next(t, told) // at once, for a page that comes back
	key := client.ObjectKey{Namespace: "fleet", Name: "prod-eu-worker-01"}
	attempts := 0
	require.Eventually(t, func() bool { // a watch may begin after the first change
		mu := &refitv1.MachineUpdate{}
		if c.Get(context.Background(), key, mu) != nil {
			return false
		}
		attempts++
		mu.Status.Step = strings.Repeat("x", attempts)
		return c.Status().Update(context.Background(), mu) == nil && len(told) > 0
	}, patience, 50*time.Millisecond)
	require.NotEqual(t, before, next(t, told))
	require.Eventually(t, func() bool {
		d := get[detail](t, f, "/api/update?namespace=fleet&name=prod-eu-worker-01").Data
		return len(d.Steps) > 6 && d.Steps[len(d.Steps)-1].Seen && strings.HasPrefix(d.Steps[len(d.Steps)-1].Text, "x")
	}, patience, 50*time.Millisecond, "what was seen is among the steps")
}

func TestAsManyListenAsMay(t *testing.T) {
	f := blind(t, uitest.New())
	var ends []func()
	for range maxListeners {
		_, end, ok := f.hub.listen()
		require.True(t, ok)
		ends = append(ends, end)
	}
	code, body := raw(t, f, "/api/events")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, string(body), "16 pages listen already")
	ends[0]()
	require.NotEmpty(t, next(t, listen(t, serving(t, f))), "one has left")
}

func TestNobodyIsWaitedFor(t *testing.T) {
	var h hub
	news, end, ok := h.listen()
	require.True(t, ok)
	for range 1000 {
		h.tell()
	}
	<-news
	select {
	case <-news:
		require.Fail(t, "the news are told once")
	default:
	}
	end()
	h.tell()
}

func TestWhoLeavesIsForgotten(t *testing.T) {
	f := blind(t, uitest.New())
	url := serving(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	cancel()
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(t, res.Body.Close())
	require.Eventually(t, func() bool {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		return len(f.hub.listeners) == 0
	}, patience, 10*time.Millisecond)
}

func TestHistoryHasABound(t *testing.T) {
	h := newHistory()
	before := &refitv1.MachineUpdate{}
	before.Namespace, before.Name = "fleet", "m1"
	for i := range 3 * historySights {
		after := before.DeepCopy()
		after.Status.Step = strings.Repeat("s", i+1)
		h.see(before, after, uitest.Now)
		h.see(after, after, uitest.Now) // nothing new
		before = after
	}
	sights := h.of(before)
	require.Len(t, sights, historySights)
	require.Len(t, sights[len(sights)-1].step, 3*historySights)
	h.see(nil, before, uitest.Now)
	require.Len(t, h.of(before), historySights)
}
