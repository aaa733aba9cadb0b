package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// reviewOf is a review as API servers send it.
func reviewOf(t *testing.T, name string) []byte {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "uid-x", Name: name, Operation: admissionv1.Create},
	})
	require.NoError(t, err)
	return body
}

func post(t *testing.T, h http.Handler, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestReviewsAreAnswered(t *testing.T) {
	h, err := NewAdmission("/answered", admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		if r.Name == "panics" {
			panic("oops")
		}
		return admission.ValidationResponse(r.Name == "good", "it is "+r.Name).WithWarnings("mind this")
	}), NewTurns(), logr.Discard())
	require.NoError(t, err)
	for name, allowed := range map[string]bool{"good": true, "bad": false, "panics": false} {
		w := post(t, h, reviewOf(t, name))
		require.Equal(t, http.StatusOK, w.Code)
		var review admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
		require.Equal(t, allowed, review.Response.Allowed, name)
		require.EqualValues(t, "uid-x", review.Response.UID)
		if name != "panics" {
			require.Equal(t, []string{"mind this"}, review.Response.Warnings)
		}
	}
	w := post(t, h, []byte("no review"))
	var review admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
	require.False(t, review.Response.Allowed)
}

// TestReviewsThatCantBeAnsweredAreNoRefusals demands an HTTP error: a refusal would keep people from writing policies, whatever the failurePolicy says.
func TestReviewsThatCantBeAnsweredAreNoRefusals(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h, err := NewAdmission("/bounded", admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		entered <- struct{}{}
		<-leave
		return admission.Allowed("")
	}), NewTurns(), logr.Discard())
	require.NoError(t, err)
	bounded, ok := h.(*reviews)
	require.True(t, ok)
	bounded.patience = time.Millisecond

	w := post(t, h, []byte(strings.Repeat(" ", MaxReviewBytes+1)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	w = post(t, h, []byte("["+strings.Repeat("{},", MaxReviewValues)+"{}]"))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.Contains(t, w.Body.String(), "values")
	w = post(t, h, []byte(strings.Repeat("[", 101)+strings.Repeat("]", 101)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)

	body, codes := reviewOf(t, "good"), make(chan int, maxReviews)
	for range maxReviews {
		go func() { codes <- post(t, h, body).Code }()
		<-entered
	}
	require.Equal(t, http.StatusServiceUnavailable, post(t, h, body).Code)
	close(leave)
	for range maxReviews {
		require.Equal(t, http.StatusOK, <-codes)
	}
}
