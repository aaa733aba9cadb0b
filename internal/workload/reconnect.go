package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// reconnecting has the connections of a config closed when the API server at their other end no longer answers. Behind one address there
// are several, and HTTP/2 stays with the one that it has found: one that accepts requests and answers none, because it has lost its etcd,
// would keep refit waiting for as long as it runs. The kubelet does the same for its heartbeats.
func reconnecting(cfg *rest.Config, patience time.Duration) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: timeout, KeepAlive: keepAlive}).DialContext)
	cfg.Dial = dialer.DialContext
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &reconnect{next: next, patience: patience, closeAll: dialer.CloseAll}
	})
}

// reconnect is a transport that closes all connections when a request was not answered in its time, and no other one was meanwhile.
type reconnect struct {
	next http.RoundTripper
	// patience is for how long no request may have been answered. Some have less time than that: their end says nothing.
	patience time.Duration
	closeAll func()
	answered atomic.Int64 // when the last answer came, in Unix nanoseconds
}

var _ utilnet.RoundTripperWrapper = (*reconnect)(nil)

// RoundTrip implements http.RoundTripper.
func (r *reconnect) RoundTrip(request *http.Request) (*http.Response, error) {
	asked := time.Now()
	response, err := r.next.RoundTrip(request)
	switch {
	case !late(request.Context(), response, err):
		if err == nil {
			r.answered.Store(time.Now().UnixNano())
		}
	case time.Since(asked) >= r.patience && r.answered.Load() < asked.UnixNano():
		r.closeAll()
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (r *reconnect) WrappedRoundTripper() http.RoundTripper { return r.next }

// late reports whether a request was not answered in its time, or with no more than that.
func late(ctx context.Context, response *http.Response, err error) bool {
	if err == nil {
		return response.StatusCode == http.StatusGatewayTimeout
	}
	var timed net.Error
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout()
}
