package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/capi-refit/refit/internal/jsonscan"
)

// The bounds of admission. API servers send one review for each policy that somebody writes, and for each edit that the guard looks at; nobody else has a
// reason to ask.
const (
	// MaxReviewBytes is the largest body of a policy's review. A policy with a full status has less than 400 KiB, and there are two of it.
	MaxReviewBytes = 1 << 20
	// MaxReviewValues is how many values it may have. Two policies with full statuses have less than 30,000.
	MaxReviewValues = 40_000
	// MaxEditBytes is the largest body of an edit's review: two objects of 1.5 MiB, which is what etcd takes, and what is around them.
	MaxEditBytes = 4 << 20
	// MaxEditValues is how many values it may have, those of managedFields counted too.
	MaxEditValues = 50_000
	// MaxReviewWork is the memory that reviews of both kinds take together, with their bodies, as it is estimated.
	MaxReviewWork = workOfByte*MaxReviewBytes + workOfValue*MaxReviewValues + workOfByte*MaxEditBytes + workOfValue*MaxEditValues +
		2*smallReviewBodies + 2*MaxReviewBytes + 2*MaxEditBytes
	// smallReviewBodies is what the bodies of one kind hold together, where they have up to maxSmallBody; larger ones hold two of the largest.
	smallReviewBodies = 4 << 20
	// maxAdmissionConnections is how many connections there are at once.
	maxAdmissionConnections = 64
)

// Bounds are those of the reviews of one kind, which have their turns apart from others.
type Bounds struct {
	// bytes and values are what a review has at most. Reviews are answered at once as long as they take together no more than the largest.
	bytes  int64
	values int
	// patience is until when a review waits for its turn, and timeout until when it is answered: API servers wait a little longer.
	patience, timeout time.Duration
}

// PolicyReviews are the bounds of reviews of policies, and EditReviews those of edits that the guard looks at.
var (
	PolicyReviews = Bounds{bytes: MaxReviewBytes, values: MaxReviewValues, patience: 2 * time.Second, timeout: 5 * time.Second}
	EditReviews   = Bounds{bytes: MaxEditBytes, values: MaxEditValues, patience: 8 * time.Second, timeout: 9500 * time.Millisecond}
)

func (b Bounds) work() int64 { return workOfByte*b.bytes + workOfValue*int64(b.values) }

// Unread is implemented by a handler that has something to say to reviews that are not handed to it, and why. Without it they get an HTTP error.
type Unread interface {
	Unread(why string) admission.Response
}

// reviews answers reviews of objects, a few at once.
type reviews struct {
	next   http.Handler
	unread Unread // may be nil
	bounds Bounds
	limits *limits
}

// NewAdmission returns what answers an API server's reviews (AdmissionReview v1) with what h says. path is the label of its metrics. A review that is
// too large, too slow, or one of too many is answered with what h says as Unread, or else with an HTTP error, which the webhook's failurePolicy is for, and
// not with a refusal. It does not look at who asks.
func NewAdmission(path string, h admission.Handler, bounds Bounds, log logr.Logger) (http.Handler, error) {
	next, err := admission.StandaloneWebhook(&admission.Webhook{Handler: h, RecoverPanic: ptr.To(true)}, admission.StandaloneOptions{Logger: log, MetricsPath: path})
	if err != nil {
		return nil, fmt.Errorf("serve admission: %w", err)
	}
	limits := newLimits()
	limits.small, limits.large, limits.work = newPool(smallReviewBodies), newPool(2*bounds.bytes), newPool(bounds.work())
	unread, _ := h.(Unread)
	return &reviews{next: next, unread: unread, bounds: bounds, limits: limits}, nil
}

// ServeHTTP implements http.Handler. A review takes its turn when all of it is there: who sends nothing keeps nobody waiting.
func (a *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), a.bounds.timeout)
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, a.bounds.patience)
	defer stop()
	control := http.NewResponseController(w)
	arrival, err := a.limits.arrive(waiting, control, addressOf(r))
	if err != nil {
		a.refuse(w, nil, refuse(err))
		return
	}
	defer arrival.release()
	body, err := readBody(w, r, arrival, a.bounds.bytes, a.check)
	arrival.arrived()
	if err != nil {
		a.refuse(w, body, a.refuseBody(r, arrival, err))
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	defer judging(ctx)()
	work := max(workOf(arrival.scanner.Shape(), len(body)), 8*minHeld)
	if err := a.limits.work.acquire(waiting, arrival.address, work, nil); err != nil {
		a.refuse(w, body, refuse(err))
		return
	}
	defer a.limits.work.release(arrival.address, work)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // tests write to memory
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.next.ServeHTTP(w, r)
}

// check returns an error for a body that would take much more memory than it has bytes. Names may be long: those of managedFields have values in them.
func (a *reviews) check(shape jsonscan.Shape) error {
	if shape.Values > a.bounds.values {
		return fmt.Errorf("it has more than %d values, which is what refit reads at most", a.bounds.values)
	}
	shape.Name = 0
	return shape.Check()
}

// refuseBody returns why a body could not be read. The rest of one that is too large is let pass, so that whoever sends it gets to read the answer.
func (a *reviews) refuseBody(r *http.Request, arrival *arrival, err error) error {
	err = refuseBody(arrival, err, a.bounds.bytes)
	var why *refusal
	if errors.As(err, &why) && (why.reason == refusedTooLarge || why.reason == refusedShape) {
		_, _ = io.CopyN(io.Discard, r.Body, 2*a.bounds.bytes)
	}
	return err
}

// uid finds the UID of a review, which API servers write first.
var uid = regexp.MustCompile(`^[^\[]*?"request":\{"uid":"([0-9a-zA-Z-]{1,64})"`)

// refuse answers a review of which there is no more than the beginning, or nothing.
func (a *reviews) refuse(w http.ResponseWriter, body []byte, err error) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	of := uid.FindSubmatch(body[:min(len(body), minHeld)])
	if a.unread == nil || of == nil {
		status := http.StatusRequestEntityTooLarge
		var why *refusal
		if errors.As(err, &why) && why.reason == refusedBusy {
			status = http.StatusServiceUnavailable
		}
		http.Error(w, "the review is not read: "+err.Error(), status)
		return
	}
	response := a.unread.Unread(err.Error())
	response.UID = types.UID(of[1])
	review := admissionv1.AdmissionReview{Response: &response.AdmissionResponse}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // who has gone reads nothing
}
