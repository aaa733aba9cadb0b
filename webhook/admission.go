package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/capi-refit/refit/internal/jsonscan"
)

// The bounds of admission. API servers send one review for each policy that somebody writes, and for each edit that the guard looks at; nobody else has a
// reason to ask.
const (
	// MaxReviewBytes is the largest body of a review. A policy with a full status has less than 400 KiB, and there are two of it.
	MaxReviewBytes = 1 << 20
	// MaxReviewValues is how many values it may have. Two policies with full statuses have less than 30,000.
	MaxReviewValues = 40_000
	// MaxReviewWork is the memory that reviews take together, as it is estimated.
	MaxReviewWork = maxReviews * (workOfByte*MaxReviewBytes + workOfValue*MaxReviewValues)
	// maxReviews is how many are read and answered at once.
	maxReviews = 2
	// maxAdmissionConnections is how many connections there are at once.
	maxAdmissionConnections = 64
	// reviewPatience is how long a review waits for its turn, and reviewTimeout how long all of it may take. API servers wait as long.
	reviewPatience = 2 * time.Second
	reviewTimeout  = 5 * time.Second
)

// reviews answers reviews of objects, a few at once.
type reviews struct {
	next     http.Handler
	turns    Turns
	patience time.Duration
}

// Turns are those of reviews, whatever they are about: a few are read and answered at once.
type Turns chan struct{}

// NewTurns returns the turns of a process.
func NewTurns() Turns { return make(Turns, maxReviews) }

// NewAdmission returns what answers an API server's reviews (AdmissionReview v1) with what h says. path is the label of its metrics. A review that is
// too large, too slow, or one of too many is answered with an HTTP error, which the webhook's failurePolicy is for, and not with a refusal. It does not
// look at who asks.
func NewAdmission(path string, h admission.Handler, turns Turns, log logr.Logger) (http.Handler, error) {
	next, err := admission.StandaloneWebhook(&admission.Webhook{Handler: h, RecoverPanic: ptr.To(true)}, admission.StandaloneOptions{Logger: log, MetricsPath: path})
	if err != nil {
		return nil, fmt.Errorf("serve admission: %w", err)
	}
	return &reviews{next: next, turns: turns, patience: reviewPatience}, nil
}

// ServeHTTP implements http.Handler.
func (a *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	waiting := time.NewTimer(a.patience)
	defer waiting.Stop()
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-waiting.C:
		http.Error(w, "others are asking; ask again", http.StatusServiceUnavailable)
		return
	case <-ctx.Done():
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(reviewTimeout)) // tests write to memory
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxReviewBytes))
	if err != nil {
		http.Error(w, "the review can't be read: "+err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err := checkReview(body); err != nil {
		http.Error(w, "the review is not read: "+err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.next.ServeHTTP(w, r)
}

// checkReview returns an error for a body that would take much more memory than it has bytes.
func checkReview(body []byte) error {
	shape := jsonscan.Scan(body)
	if shape.Values > MaxReviewValues {
		return fmt.Errorf("it has about %d values, and %d are read at most", shape.Values, MaxReviewValues)
	}
	return shape.Check()
}
