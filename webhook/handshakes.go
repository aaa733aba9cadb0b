package webhook

import (
	"io"
	"net"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// handshakeError begins what net/http logs of a TLS handshake that failed, before the address and the error.
	handshakeError = "http: TLS handshake error from "
	// closedAtOnce is the error of a connection on which nothing was sent: a check that the port is open.
	closedAtOnce = "EOF"

	// A remote host gets this many lines at once, and then this many a second.
	linesAtOnce    = 5
	linesPerSecond = 1. / 60
	// hostsKnown bounds how many hosts are told apart. After that the count begins again.
	hostsKnown = 1000
)

// HandshakeLog is a writer for the standard logger, to which net/http's servers report connections. Those that failed in
// their TLS handshake are logged with the remote host and the reason, for each host at a limited rate, so that who is refused
// can't fill the log. So are all other lines together.
type HandshakeLog struct {
	log   logr.Logger
	clock clock.PassiveClock

	mu    sync.Mutex
	hosts map[string]*refusals
}

// refusals are those of one host.
type refusals struct {
	limit  *rate.Limiter
	silent int // since the last line
}

var _ io.Writer = (*HandshakeLog)(nil)

// NewHandshakeLog returns a HandshakeLog that logs to log.
func NewHandshakeLog(log logr.Logger, c clock.PassiveClock) *HandshakeLog {
	return &HandshakeLog{log: log, clock: c, hosts: map[string]*refusals{}}
}

// Write takes one message of the standard logger.
func (h *HandshakeLog) Write(line []byte) (int, error) {
	message := strings.TrimSpace(string(line))
	failed, ok := strings.CutPrefix(message, handshakeError)
	if !ok {
		if silent, ok := h.allow(""); ok {
			h.log.Info(message, "notLogged", silent)
		}
		return len(line), nil
	}
	address, reason, _ := strings.Cut(failed, ": ")
	if reason == closedAtOnce {
		return len(line), nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if silent, ok := h.allow(host); ok {
		h.log.Info("Refused a connection", "from", host, "reason", reason, "notLogged", silent)
	}
	return len(line), nil
}

// allow reports whether another line about the host may be logged, and how many were not since the last one.
func (h *HandshakeLog) allow(host string) (silent int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.hosts[host]
	if r == nil {
		if len(h.hosts) >= hostsKnown {
			clear(h.hosts)
		}
		r = &refusals{limit: rate.NewLimiter(linesPerSecond, linesAtOnce)}
		h.hosts[host] = r
	}
	if !r.limit.AllowN(h.clock.Now(), 1) {
		r.silent++
		return 0, false
	}
	silent, r.silent = r.silent, 0
	return silent, true
}
