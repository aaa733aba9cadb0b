package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/capi-refit/refit/internal/jsonscan"
)

// refusal is why a request is not handed to its handler. The message is for the caller, the reason is a label.
type refusal struct{ reason, message string }

// Error implements error.
func (r *refusal) Error() string { return r.message }

// The reasons. They are all values of a label.
const (
	refusedMethod   = "Method"   // it is no POST
	refusedTooLarge = "TooLarge" // its body is larger than MaxRequestBytes
	refusedSlow     = "Slow"     // its body did not arrive in time, or others needed the room
	refusedShape    = "Shape"    // its body nests too deep, has too many values, or too long a name
	refusedBusy     = "Busy"     // others have used up what there is
	refusedStarting = "Starting" // this process has not read yet what it answers from
	refusedBroken   = "Broken"   // its body could not be read, or the caller has gone
)

// refusedReasons are all of them.
var refusedReasons = []string{refusedMethod, refusedTooLarge, refusedSlow, refusedShape, refusedBusy, refusedStarting, refusedBroken}

// errSlow ends a body that takes too long.
var errSlow = errors.New("the body takes too long")

// request is a request whose body is there.
type request struct {
	body    []byte
	work    int64 // estimated
	address string
	arrival *arrival
}

// read reads the body of a request. What it returns is released when the request is answered.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*request, error) {
	control := http.NewResponseController(w)
	a, body, err := s.arrive(w, r, control)
	if err != nil {
		_ = control.SetReadDeadline(time.Unix(1, 0)) // the rest of the body is not waited for
		return nil, err
	}
	// From here on reading shows only whether the caller is still there.
	_ = control.SetReadDeadline(time.Time{})
	return &request{body: body, work: workOf(a.scanner.Shape(), len(body)), address: a.address, arrival: a}, nil
}

// arrive reads the body of a request as it arrives. The error is a refusal.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request, control *http.ResponseController) (*arrival, []byte, error) {
	if r.Method != http.MethodPost {
		return nil, nil, &refusal{refusedMethod, fmt.Sprintf("the request's method is %.20s and should be POST", r.Method)}
	}
	if r.ContentLength > s.limit {
		return nil, nil, tooLargeFor(s.limit)
	}
	a, err := s.limits.arrive(r.Context(), control, addressOf(r))
	if err != nil {
		return nil, nil, refuse(err)
	}
	body, err := readBody(w, r, a, s.limit, jsonscan.Shape.Check)
	a.arrived()
	if err != nil {
		a.release()
		return nil, nil, refuseBody(a, err, s.limit)
	}
	return a, body, nil
}

// readBody reads a body into a buffer that doubles, so that no more is held than has arrived, whatever the request says of its
// length. It stops where it is beyond limit, or check says so of the shape. With an error it returns what was read until then.
func readBody(w http.ResponseWriter, r *http.Request, a *arrival, limit int64, check func(jsonscan.Shape) error) ([]byte, error) {
	from := http.MaxBytesReader(w, r.Body, limit)
	most := limit + 1
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1) // one more, so that the end is seen
	}
	body := make([]byte, 0, min(most, minHeld))
	for {
		n, err := from.Read(body[len(body):cap(body)])
		a.scanner.Write(body[len(body) : len(body)+n])
		body = body[:len(body)+n]
		if err := check(a.scanner.Shape()); err != nil {
			return body, &refusal{refusedShape, "the request's body is not read: " + err.Error()}
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
		if len(body) < cap(body) {
			continue
		}
		size := max(min(2*int64(cap(body)), most), int64(cap(body))+1)
		if err := a.hold(size); err != nil {
			return body, err
		}
		grown := make([]byte, len(body), size)
		copy(grown, body)
		body = grown
	}
}

// refuseBody returns why a body could not be read.
func refuseBody(a *arrival, err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	var known *refusal
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLarge):
		return tooLargeFor(limit)
	case errors.Is(err, errBusy):
		return refuse(err)
	case a.late() || isTimeout(err):
		return &refusal{refusedSlow, fmt.Sprintf("the request's body did not arrive within %s, or while others were waiting for the room; send it at once", a.limits.patience)}
	default:
		return refuse(err)
	}
}

func tooLargeFor(limit int64) error {
	return &refusal{refusedTooLarge, fmt.Sprintf("the request's body is larger than %d MiB", limit>>20)}
}

// late reports whether the body was dropped, or has taken too long.
func (a *arrival) late() bool { return a.dropped || time.Since(a.began) >= a.limits.patience }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// refuse returns why what a request needs could not be had.
func refuse(err error) error {
	if errors.Is(err, errBusy) || errors.Is(err, context.DeadlineExceeded) {
		return &refusal{refusedBusy, errBusy.Error()}
	}
	return &refusal{refusedBroken, fmt.Sprintf("the request's body could not be read: %v", err)}
}

// addressOf returns the host that a request comes from.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
