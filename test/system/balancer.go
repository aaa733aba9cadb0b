package system

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// balancer passes connections on to whichever of its backends takes them. It is what a Service is in a real cluster.
type balancer struct {
	listener net.Listener
	backends []string
	next     atomic.Uint32
	done     sync.WaitGroup
}

func newBalancer(backends []string) (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, backends: backends}
	b.done.Go(b.serve)
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) close() error {
	err := b.listener.Close()
	b.done.Wait()
	return err
}

func (b *balancer) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pass(conn)
	}
}

// pass connects to the first backend that answers, beginning with another one each time.
func (b *balancer) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // the other end knows best
	first := int(b.next.Add(1))
	for i := range b.backends {
		server, err := net.DialTimeout("tcp", b.backends[(first+i)%len(b.backends)], time.Second)
		if err != nil {
			continue
		}
		defer server.Close() //nolint:errcheck // the other end knows best
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // it ends when one of them goes
				ended <- struct{}{}
			}()
		}
		<-ended
		return
	}
}
