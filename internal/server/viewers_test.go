package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationapi "k8s.io/api/authentication/v1"
	authorizationapi "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// reviewing is an API server that knows the token good, whose user may see all, and answers with a code where that is not 201.
type reviewing struct {
	code  atomic.Int32
	asked atomic.Int32
}

func (a *reviewing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(a.code.Load()))
	if a.code.Load() != http.StatusCreated {
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: a.code.Load()})
		return
	}
	var review authenticationapi.TokenReview
	if r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" {
		a.asked.Add(1)
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username = "somebody"
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	_ = json.NewEncoder(w).Encode(authorizationapi.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}, Status: authorizationapi.SubjectAccessReviewStatus{Allowed: true},
	})
}

func viewed(t *testing.T) (api *reviewing, page func(token string) int) {
	t.Helper()
	api = &reviewing{}
	api.code.Store(http.StatusCreated)
	s := httptest.NewServer(api)
	t.Cleanup(s.Close)
	json := rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}
	v, err := newViewers(&rest.Config{Host: s.URL, QPS: 1000, Burst: 2000, ContentConfig: json})
	require.NoError(t, err)
	h := v.only(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return api, func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/ui/api/fleet", http.NoBody)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

func TestWhoIsLetIn(t *testing.T) {
	_, page := viewed(t)
	require.Equal(t, http.StatusUnauthorized, page(""))
	require.Equal(t, http.StatusUnauthorized, page("other"))
	require.Equal(t, http.StatusOK, page("good"))
}

// TestNobodyIsUnknownWhileTheAPIServerDoesNotAnswer: who is, is not to log in again.
func TestNobodyIsUnknownWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	for _, code := range []int32{http.StatusServiceUnavailable, http.StatusForbidden, http.StatusInternalServerError} {
		api, page := viewed(t)
		api.code.Store(code)
		require.Equal(t, http.StatusBadGateway, page("good"))
	}
}

// TestMadeUpTokensCostLittle: anybody who reaches the port can send them.
func TestMadeUpTokensCostLittle(t *testing.T) {
	api, page := viewed(t)
	require.Equal(t, http.StatusOK, page("good"))
	api.asked.Store(0)
	began := time.Now()
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() { page(fmt.Sprintf("made-up-%d", i)) })
	}
	require.Equal(t, http.StatusOK, page("good"), "who was known is let in meanwhile")
	all.Wait()
	most := unknownBurst + int32(time.Since(began).Seconds()*unknownQPS) + 1
	require.LessOrEqual(t, api.asked.Load(), most)
}
