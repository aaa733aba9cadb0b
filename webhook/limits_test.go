package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// waiting has a goroutine ask for n, and returns when it waits.
func waiting(t *testing.T, p *pool, address string, n int64) (granted chan error) {
	granted = make(chan error, 1)
	p.mu.Lock()
	before := len(p.waiting)
	p.mu.Unlock()
	go func() { granted <- p.acquire(t.Context(), address, n, nil) }()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) > before
	}, time.Minute, time.Millisecond)
	return granted
}

func TestPoolGivesToWhoHoldsLeast(t *testing.T) {
	p := newPool(10)
	require.NoError(t, p.acquire(t.Context(), "abuser", 6, nil))
	require.NoError(t, p.acquire(t.Context(), "abuser", 4, nil))
	first, large, other := waiting(t, p, "abuser", 4), waiting(t, p, "large", 10), waiting(t, p, "other", 4)
	p.release("abuser", 4)
	require.NoError(t, <-other, "it holds nothing, and what the one before it wants is not there")
	require.Empty(t, first)
	p.release("abuser", 6)
	require.NoError(t, <-first)
	p.release("abuser", 4)
	p.release("other", 4)
	require.NoError(t, <-large)
	p.release("large", 10)
	require.Zero(t, p.inUse())
	require.Empty(t, p.held)
	require.Empty(t, p.queued)
}

func TestPoolTakesTurns(t *testing.T) {
	p := newPool(1)
	require.NoError(t, p.acquire(t.Context(), "a", 1, nil))
	a1, a2, b := waiting(t, p, "a", 1), waiting(t, p, "a", 1), waiting(t, p, "b", 1)
	p.release("a", 1)
	require.NoError(t, <-a1)
	p.release("a", 1)
	require.NoError(t, <-b, "a has had its turn")
	p.release("b", 1)
	require.NoError(t, <-a2)
}

func TestPoolIsLeftWithItsContext(t *testing.T) {
	p := newPool(1)
	require.NoError(t, p.acquire(t.Context(), "a", 5, nil), "more than there is counts as all of it")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- p.acquire(ctx, "b", 1, cancel) }() // whoever is asked for room has it end
	require.ErrorIs(t, <-gone, context.Canceled)
	p.release("a", 5)
	require.Zero(t, p.inUse())
	require.Empty(t, p.waiting)
}

func TestPoolLetsNotEverybodyWait(t *testing.T) {
	p := newPool(1)
	p.queued["a"] = maxWaitingAddress
	require.NoError(t, p.acquire(t.Context(), "a", 1, nil))
	require.ErrorIs(t, p.acquire(t.Context(), "a", 1, nil), errBusy)
	b := waiting(t, p, "b", 1)
	p.release("a", 1)
	require.NoError(t, <-b)
}

// server serves a hook over HTTPS, and returns its address, clients' roots and its limits.
func server(t *testing.T, handle func(context.Context, []byte) runtimehooksv1.ResponseObject) (address string, roots *x509.CertPool, s *Server) {
	dir, port := t.TempDir(), freePort(t)
	bundle, err := WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	on := NewListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir}, logr.Discard())
	s, err = NewServer(logr.Discard(), NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	require.NoError(t, s.Register(on, []Hook{{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Handle: handle}}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- on.Start(ctx) }()
	require.Eventually(t, func() bool { return on.StartedChecker()(nil) == nil }, time.Minute, time.Millisecond)
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), roots, s
}

func echo(_ context.Context, b []byte) runtimehooksv1.ResponseObject {
	return success(fmt.Sprint(len(b)))
}

// slowly opens a connection that sends a part of a body, and returns it.
func slowly(t *testing.T, address string, roots *x509.CertPool, length int, part []byte) net.Conn {
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", canUpdatePath, length)
	require.NoError(t, err)
	_, err = c.Write(part)
	require.NoError(t, err)
	return c
}

func answerOf(t *testing.T, client *http.Client, address string, body []byte) (status, message string) {
	r, err := client.Post("https://"+address+canUpdatePath, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it was only read
	var answer runtimehooksv1.CanUpdateMachineResponse
	require.NoError(t, json.NewDecoder(r.Body).Decode(&answer))
	return string(answer.Status), answer.Message
}

// TestSlowBodiesGiveWay has slow bodies hold all bytes there are: they are dropped for a caller that sends its own at once.
func TestSlowBodiesGiveWay(t *testing.T) {
	address, roots, s := server(t, echo)
	s.limits.small = newPool(4 * minHeld)
	var slow []net.Conn
	for range 4 {
		slow = append(slow, slowly(t, address, roots, 1000, []byte("{")))
	}
	require.Eventually(t, func() bool { return s.limits.small.inUse() == 4*minHeld }, time.Minute, time.Millisecond)
	for _, protocols := range [][]string{{"http/1.1"}, {"h2"}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: protocols}, ForceAttemptHTTP2: protocols[0] == "h2"}
		status, message := answerOf(t, &http.Client{Transport: transport}, address, []byte(`{"a":1}`))
		require.Equal(t, "Success", status, message)
		require.Equal(t, "7", message)
		transport.CloseIdleConnections()
	}
	answers := make(chan string, len(slow))
	for _, c := range slow {
		go func() {
			answer, _ := io.ReadAll(c)
			answers <- string(answer)
		}()
	}
	require.Contains(t, <-answers, "did not arrive within", "one was dropped, and told so")
	require.NotZero(t, testutil.ToFloat64(s.metrics.refused.WithLabelValues(refusedSlow)))
	for _, c := range slow {
		_ = c.Close()
	}
	require.Eventually(t, func() bool { return s.limits.small.inUse() == 0 }, time.Minute, time.Millisecond, "all is given back")
}

// TestSlowHTTP2BodiesGiveWay: a stream that is dropped does not take its connection with it.
func TestSlowHTTP2BodiesGiveWay(t *testing.T) {
	address, roots, s := server(t, echo)
	s.limits.small = newPool(minHeld)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body, never := io.Pipe()
	defer never.Close() //nolint:errcheck // it is a pipe
	dropped := make(chan string, 1)
	go func() {
		r, err := client.Post("https://"+address+canUpdatePath, "application/json", body)
		if err != nil {
			dropped <- err.Error()
			return
		}
		defer r.Body.Close() //nolint:errcheck // it was only read
		answer, _ := io.ReadAll(r.Body)
		dropped <- r.Proto + " " + string(answer)
	}()
	require.Eventually(t, func() bool { return s.limits.small.inUse() == minHeld }, time.Minute, time.Millisecond)
	status, message := answerOf(t, client, address, []byte(`{"a":1}`))
	require.Equal(t, "Success", status, message)
	require.Contains(t, <-dropped, "HTTP/2.0")
}

// TestBodiesHoldWhatHasArrived: what a request says of its length holds nothing.
func TestBodiesHoldWhatHasArrived(t *testing.T) {
	address, roots, s := server(t, echo)
	for range 8 {
		slowly(t, address, roots, MaxRequestBytes, bytes.Repeat([]byte(" "), 100<<10))
	}
	require.Eventually(t, func() bool { return s.limits.small.inUse() == 8*128<<10 }, time.Minute, time.Millisecond)
	require.Zero(t, s.limits.large.inUse())
}

// TestLargeBodies: they are read and given back, also those that are too large.
func TestLargeBodies(t *testing.T) {
	address, roots, s := server(t, echo)
	s.limits.patience = time.Minute // with the race detector, on a machine that is busy, 32 MiB take longer than five seconds
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, length := range []int{0, 1, minHeld - 1, minHeld, minHeld + 1, maxSmallBody, maxSmallBody + 1, MaxRequestBytes} {
		status, message := answerOf(t, client, address, bytes.Repeat([]byte(" "), length))
		require.Equal(t, "Success", status, message)
		require.Equal(t, strconv.Itoa(length), message)
	}
	s.limit = 1 << 20
	status, message := answerOf(t, client, address, bytes.Repeat([]byte(" "), 1<<20+1))
	require.Equal(t, "Failure", status)
	require.Contains(t, message, "larger than 1 MiB")
	require.Eventually(t, func() bool { return s.limits.small.inUse()+s.limits.large.inUse() == 0 }, time.Minute, time.Millisecond)
}

// TestSmallRequestsPassLargeOnes: while one that takes much is judged, another one like it waits, and small ones are answered.
func TestSmallRequestsPassLargeOnes(t *testing.T) {
	underWay, goOn := make(chan struct{}, 2), make(chan struct{})
	address, roots, _ := server(t, func(_ context.Context, b []byte) runtimehooksv1.ResponseObject {
		if len(b) > 1<<20 {
			underWay <- struct{}{}
			<-goOn
		}
		return success("")
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	large := make(chan string, 2)
	for range 2 {
		go func() {
			r, err := client.Post("https://"+address+canUpdatePath, "application/json", bytes.NewReader(bytes.Repeat([]byte(" "), 2<<20)))
			if err == nil {
				err = r.Body.Close()
			}
			large <- fmt.Sprint(err)
		}()
	}
	<-underWay
	status, message := answerOf(t, client, address, []byte(`{"a":1}`))
	require.Equal(t, "Success", status, message)
	require.Empty(t, underWay, "one at a time")
	close(goOn)
	require.Equal(t, "<nil>", <-large)
	require.Equal(t, "<nil>", <-large)
}

// TestConnectionsGiveWay opens all connections there may be, and says nothing: a caller is let in all the same.
func TestConnectionsGiveWay(t *testing.T) {
	c := newConnections(3)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	on := c.limit(inner)
	defer on.Close() //nolint:errcheck // it is the end
	open := func() (client net.Conn, accepted *connection) {
		client, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		got, err := on.Accept()
		require.NoError(t, err)
		return client, got.(*connection)
	}
	working, first := open()
	first.judged.Add(1)
	idle, second := open()
	open()
	second.address = "elsewhere"
	for conn := range c.open {
		conn.since.Add(-int64(time.Hour))
	}
	second.since.Add(-int64(time.Hour))
	_, third := open()
	require.Len(t, c.open, 3)
	require.True(t, c.open[first], "a request is under way")
	require.True(t, c.open[second], "it is the oldest, but alone at its address")
	require.True(t, c.open[third])
	_, err = working.Write([]byte("x"))
	require.NoError(t, err)
	_, err = idle.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, third.Close())
	require.Len(t, c.open, 2, "what is closed does not count")
}
