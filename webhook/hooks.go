package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/plain"
)

// MaxRequestBytes is the largest body that is read. It is Cluster API's own limit for extensions.
const MaxRequestBytes = 20 << 20

// Hook is a handler of a runtime hook.
type Hook struct {
	// Hook is the hook's function in the hooks' API package.
	Hook runtimecatalog.Hook
	// Name is unique among all hooks of the server. Cluster API appends the name of the ExtensionConfig to it.
	Name string
	// Timeout is how long Cluster API waits for an answer: whole seconds, 30 at most.
	Timeout time.Duration
	// Handle answers a request's body. It must be safe for concurrent use.
	Handle func(ctx context.Context, body []byte) runtimehooksv1.ResponseObject
}

// Server serves hooks.
type Server struct {
	catalog  *runtimecatalog.Catalog
	log      logr.Logger
	metrics  *Metrics
	limit    int64 // of a body, in bytes
	limits   *limits
	refusals *seldom
	ready    func() error
}

// NewServer returns a Server that logs to log and counts in metrics.
func NewServer(log logr.Logger, metrics *Metrics) (*Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("read the catalog of hooks: %w", err)
	}
	s := &Server{catalog: catalog, log: log, metrics: metrics, limit: MaxRequestBytes, limits: newLimits(), refusals: newSeldom()}
	metrics.show(s.limits)
	return s, nil
}

// OnlyWhen has hooks refused at once, and not their discovery, as long as ready returns an error: whoever asks is told, and is not kept waiting.
// It is for the time before Register.
func (s *Server) OnlyWhen(ready func() error) { s.ready = ready }

// starting returns a refusal as long as there is nothing to answer from.
func (s *Server) starting(h Hook) error {
	if s.ready == nil || h.Name == "" {
		return nil
	}
	if err := s.ready(); err != nil {
		return &refusal{refusedStarting, fmt.Sprintf("refit has just started: %v; ask again", err)}
	}
	return nil
}

// Register has the hooks, and the discovery of them, served by s.
func (s *Server) Register(on ctrlwebhook.Server, hooks []Hook) error {
	discovery := &runtimehooksv1.DiscoveryResponse{}
	discovery.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("DiscoveryResponse"))
	discovery.Status = runtimehooksv1.ResponseStatusSuccess
	seen := map[string]bool{}
	for _, h := range hooks {
		if seen[h.Name] {
			return fmt.Errorf("two hooks are named %q", h.Name)
		}
		seen[h.Name] = true
		gvh, err := s.catalog.GroupVersionHook(h.Hook)
		if err != nil {
			return fmt.Errorf("hook %s: %w", h.Name, err)
		}
		discovery.Handlers = append(discovery.Handlers, runtimehooksv1.ExtensionHandler{
			Name:           h.Name,
			RequestHook:    runtimehooksv1.GroupVersionHook{APIVersion: gvh.GroupVersion().String(), Hook: gvh.Hook},
			TimeoutSeconds: ptr.To(int32(h.Timeout / time.Second)),
			// Ignore would mean: replace the machine, or take the update for complete, when this server can't be reached.
			FailurePolicy: ptr.To(runtimehooksv1.FailurePolicyFail),
		})
		if err := s.serve(on, gvh, h); err != nil {
			return err
		}
	}
	gvh, err := s.catalog.GroupVersionHook(runtimehooksv1.Discovery)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	return s.serve(on, gvh, Hook{Handle: func(context.Context, []byte) runtimehooksv1.ResponseObject { return discovery }})
}

func (s *Server) serve(on ctrlwebhook.Server, gvh runtimecatalog.GroupVersionHook, h Hook) error {
	if _, err := s.catalog.NewResponse(gvh); err != nil {
		return fmt.Errorf("hook %s: %w", gvh.Hook, err)
	}
	if h.Timeout == 0 {
		h.Timeout = defaultTimeout
	}
	on.Register(runtimecatalog.GVHToPath(gvh, h.Name), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout) // nobody waits longer
		defer cancel()
		log := s.log.WithValues("hook", gvh.Hook)
		err := s.starting(h)
		var request *request
		if err == nil {
			request, err = s.read(w, r.WithContext(ctx))
		}
		if err == nil {
			defer request.arrival.release() // not before the answer is written
		}
		var a answer
		if err == nil {
			a, err = s.answer(ctrl.LoggerInto(ctx, log), request, gvh, h)
		}
		if err != nil {
			a = s.refuse(log, gvh, err)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // tests write to memory
		w.Header().Set("Content-Type", "application/json")
		// An error here means that the manager has gone. It will ask again.
		_, _ = w.Write(a.body)
		s.metrics.observe(gvh.Hook, string(a.status), time.Since(start))
	}))
	return nil
}

// answer is a response as it is sent.
type answer struct {
	status runtimehooksv1.ResponseStatus
	body   []byte
}

// answer has the request handled when it is its turn. The error is a refusal.
func (s *Server) answer(ctx context.Context, r *request, gvh runtimecatalog.GroupVersionHook, h Hook) (answer, error) {
	defer judging(ctx)()
	done, err := s.limits.begin(ctx, r.address, r.work)
	if err != nil {
		return answer{}, refuse(err)
	}
	defer done()
	return s.encode(s.handle(ctx, r.body, gvh, h), gvh), nil
}

// encode returns the response as it is sent.
func (s *Server) encode(response runtimehooksv1.ResponseObject, gvh runtimecatalog.GroupVersionHook) answer {
	response = printable(response)
	body, err := json.Marshal(response)
	if err != nil {
		s.log.Error(err, "Could not encode a response", "hook", gvh.Hook)
		response = s.failure(gvh, internalError)
		body, _ = json.Marshal(response) // it has nothing but texts
	}
	return answer{response.GetStatus(), body}
}

// printable returns the response without control characters in its message, which may have the names of files in it that anybody has written. Cluster API
// shows it in conditions and logs. The response itself may be one that others are given, too.
func printable(response runtimehooksv1.ResponseObject) runtimehooksv1.ResponseObject {
	message := strings.Map(func(r rune) rune {
		if plain.Unfit(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, response.GetMessage())
	if message == response.GetMessage() {
		return response
	}
	changed, ok := response.DeepCopyObject().(runtimehooksv1.ResponseObject)
	if !ok {
		return response // can't be: it is a copy
	}
	changed.SetMessage(message)
	return changed
}

// refuse answers a request that was not handled. Cluster API is given the message as a Failure and not as another HTTP status:
// that would be an error of the connection, which a failure policy may let it ignore.
func (s *Server) refuse(log logr.Logger, gvh runtimecatalog.GroupVersionHook, err error) answer {
	reason := refusedBroken
	var r *refusal
	if errors.As(err, &r) {
		reason = r.reason
	}
	s.metrics.refused.WithLabelValues(reason).Inc()
	if s.refusals.allow(reason, time.Now()) {
		log.Info("Refused a request", "reason", reason, "message", err.Error())
	}
	return s.encode(s.failure(gvh, err.Error()), gvh)
}

// internalError is the message of what is refit's own fault.
const internalError = "refit met an internal error; its log has the details"

// handle calls the handler. It always returns a response with a status.
func (s *Server) handle(ctx context.Context, body []byte, gvh runtimecatalog.GroupVersionHook, h Hook) (response runtimehooksv1.ResponseObject) {
	log := ctrl.LoggerFrom(ctx)
	defer func() {
		if p := recover(); p != nil {
			log.Error(fmt.Errorf("%v", p), "A handler panicked", "stack", string(debug.Stack()))
			response = s.failure(gvh, internalError)
		}
	}()
	response = h.Handle(ctx, body)
	if response.GetStatus() == "" {
		log.Error(errors.New("the response has no status"), "A handler is wrong")
		return s.failure(gvh, internalError)
	}
	return response
}

// failure returns the hook's response with the message. Cluster API takes it as an error and asks again.
func (s *Server) failure(gvh runtimecatalog.GroupVersionHook, message string) runtimehooksv1.ResponseObject {
	obj, err := s.catalog.NewResponse(gvh)
	response, ok := obj.(runtimehooksv1.ResponseObject)
	if err != nil || !ok {
		response = &runtimehooksv1.DiscoveryResponse{} // can't be: serve has tried it
	}
	response.SetStatus(runtimehooksv1.ResponseStatusFailure)
	response.SetMessage(message)
	return response
}
