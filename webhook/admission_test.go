package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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
	}), PolicyReviews, logr.Discard())
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
	}), PolicyReviews, logr.Discard())
	require.NoError(t, err)
	bounded, ok := h.(*reviews)
	require.True(t, ok)
	bounded.bounds.patience = 200 * time.Millisecond

	w := post(t, h, []byte(strings.Repeat(" ", MaxReviewBytes+1)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	w = post(t, h, []byte("["+strings.Repeat("{},", MaxReviewValues)+"{}]"))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.Contains(t, w.Body.String(), "values")
	w = post(t, h, []byte(strings.Repeat("[", 101)+strings.Repeat("]", 101)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)

	body, code := reviewOf(t, "good"), make(chan int, 1)
	bounded.limits.work = newPool(1)
	go func() { code <- post(t, h, body).Code }()
	<-entered
	require.Equal(t, http.StatusServiceUnavailable, post(t, h, body).Code)
	close(leave)
	require.Equal(t, http.StatusOK, <-code)
}

// unreadHandler says of reviews that are not handed to it why, and answers others slowly.
type unreadHandler struct{ admission.HandlerFunc }

func (unreadHandler) Unread(why string) admission.Response {
	return admission.Allowed("").WithWarnings("not judged: " + why)
}

func edits(t *testing.T, name string, takes time.Duration) *httptest.Server {
	t.Helper()
	h, err := NewAdmission("/"+name, unreadHandler{func(context.Context, admission.Request) admission.Response {
		time.Sleep(takes)
		return admission.Denied("no")
	}}, EditReviews, logr.Discard())
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func send(t *testing.T, url string, body []byte) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	var review admissionv1.AdmissionReview
	if res.StatusCode == http.StatusOK {
		require.NoError(t, json.NewDecoder(res.Body).Decode(&review))
		require.EqualValues(t, "uid-x", review.Response.UID)
	}
	return res.StatusCode, review.Response
}

// TestWhoSendsNothingKeepsNoReviewWaiting: a turn is taken when all of a review is there.
func TestWhoSendsNothingKeepsNoReviewWaiting(t *testing.T) {
	server := edits(t, "idle", 0)
	for range 5 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))
		require.NoError(t, err)
	}
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	code, response := send(t, server.URL, reviewOf(t, "x"))
	require.Equal(t, http.StatusOK, code)
	require.False(t, response.Allowed)
	require.Less(t, time.Since(begin), 2*time.Second)
}

// TestManyEditsAtOnceAreJudged: of a script, or of a controller that starts.
func TestManyEditsAtOnceAreJudged(t *testing.T) {
	server := edits(t, "burst", 700*time.Millisecond)
	body := reviewOf(t, "x")
	var all sync.WaitGroup
	var refused atomic.Int32
	for range 20 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, bytes.NewReader(body))
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return
			}
			defer func() { _ = res.Body.Close() }()
			var review admissionv1.AdmissionReview
			if json.NewDecoder(res.Body).Decode(&review) == nil && review.Response != nil && !review.Response.Allowed {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 20, refused.Load())
}

// TestEditsOfWhatEtcdTakesAreRead: also with names in managedFields that have values in them. What is larger is let pass with a warning.
func TestEditsOfWhatEtcdTakesAreRead(t *testing.T) {
	server := edits(t, "large", 0)
	with := func(object string) []byte {
		return []byte(strings.Replace(string(reviewOf(t, "x")), `"object":null,"oldObject":null`, `"object":`+object+`,"oldObject":`+object, 1))
	}
	for name, tc := range map[string]struct {
		object  string
		allowed bool
	}{
		"large":     {`{"a":"` + strings.Repeat("x", 3<<19) + `"}`, false},
		"long name": {`{"` + strings.Repeat("x", 5000) + `":1}`, false},
		"too large": {`{"a":"` + strings.Repeat("x", 3<<20) + `"}`, true},
		"values":    {`[` + strings.Repeat("1,", MaxEditValues) + `1]`, true},
	} {
		body := with(tc.object)
		require.Greater(t, len(body), 5000)
		code, response := send(t, server.URL, body)
		require.Equal(t, http.StatusOK, code, name)
		require.Equal(t, tc.allowed, response.Allowed, name)
		if tc.allowed {
			require.Contains(t, response.Warnings[0], "not judged", name)
		}
	}
}
