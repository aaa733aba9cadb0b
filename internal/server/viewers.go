package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationapi "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/ui"
)

// How long what the API server said of a token, and of what its user may see, counts, and how long it may take to answer.
const (
	tokenCounts = ui.Recheck
	rightCounts = ui.Recheck
	noCounts    = 10 * time.Second
	askTimeout  = 10 * time.Second
)

// The API server is asked about tokens that it has known before by one client, and by another one, more slowly, about those that anybody may make up. Neither
// is that of updates, which don't wait behind them.
const (
	knownQPS, knownBurst     = 20, 40
	unknownQPS, unknownBurst = 2, 10
	// mostKnown is how many tokens are remembered that were known once.
	mostKnown = 1000
)

// viewers finds out who asks for the page, and whether they may: a TokenReview says whose a token is, a SubjectAccessReview whether that user may do that with
// the path.
type viewers struct {
	known, unknown authenticator.Token
	rights         authorizer.Authorizer
	// were has the digests of tokens that the API server has known.
	were *lru.Cache
}

func newViewers(of *rest.Config) (*viewers, error) {
	limited := func(qps float32, burst int) *rest.Config {
		cfg := rest.CopyConfig(of)
		cfg.QPS, cfg.Burst, cfg.RateLimiter = qps, burst, nil
		return cfg
	}
	v := &viewers{were: lru.New(mostKnown)}
	for _, by := range []struct {
		to    *authenticator.Token
		qps   float32
		burst int
	}{{&v.known, knownQPS, knownBurst}, {&v.unknown, unknownQPS, unknownBurst}} {
		c, err := authenticationv1.NewForConfig(limited(by.qps, by.burst))
		if err != nil {
			return nil, err
		}
		*by.to = tokencache.New(tokenReviews{c.TokenReviews()}, false, tokenCounts, noCounts)
	}
	c, err := authorizationv1.NewForConfig(limited(knownQPS, knownBurst))
	if err != nil {
		return nil, err
	}
	v.rights, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: c, AllowCacheTTL: rightCounts, DenyCacheTTL: noCounts,
		WebhookRetryBackoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3},
	}.New()
	return v, err
}

// only has next answer to whom the API server lets.
func (v *viewers) only(next http.Handler) http.Handler {
	log := ctrl.Log.WithName("page")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			http.Error(w, "A bearer token is needed.", http.StatusUnauthorized)
			return
		}
		who, ok, err := v.who(ctx, token)
		if err != nil {
			log.Error(err, "Could not ask the API server whose a token is")
			http.Error(w, "The API server could not be asked whose the token is.", http.StatusBadGateway)
			return
		}
		if !ok {
			http.Error(w, "The API server does not know the token.", http.StatusUnauthorized)
			return
		}
		may, why, err := v.rights.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
		switch {
		case err != nil:
			log.Error(err, "Could not ask the API server who may see the page", "user", who.GetName())
			http.Error(w, "The API server could not be asked what you may see.", http.StatusBadGateway)
		case may != authorizer.DecisionAllow:
			log.V(2).Info("Somebody may not see the page", "user", who.GetName(), "why", why)
			http.Error(w, "You may not get this.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// who returns whose a token is, or that the API server does not know it.
func (v *viewers) who(ctx context.Context, token string) (user.Info, bool, error) {
	digest, by := sha256.Sum256([]byte(token)), v.unknown
	if _, was := v.were.Get(digest); was {
		by = v.known
	}
	answer, ok, err := by.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		return nil, false, err
	case !ok:
		v.were.Remove(digest)
		return nil, false, nil
	}
	v.were.Add(digest, nil)
	return answer.User, true, nil
}

// tokenReviews asks the API server about a token. Those of client-go do the same, but don't tell a token that nobody knows from an API server that does not
// answer.
type tokenReviews struct {
	client authenticationv1.TokenReviewInterface
}

func (t tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	review, err := t.client.Create(ctx, &authenticationapi.TokenReview{Spec: authenticationapi.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("review a token: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, false, nil
	}
	extra := map[string][]string{}
	for name, values := range review.Status.User.Extra {
		extra[name] = values
	}
	u := review.Status.User
	return &authenticator.Response{User: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}}, true, nil
}
