package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
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
	catalog *runtimecatalog.Catalog
	log     logr.Logger
	metrics *Metrics
	limit   int64
}

// NewServer returns a Server that logs to log and counts in metrics.
func NewServer(log logr.Logger, metrics *Metrics) (*Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("read the catalog of hooks: %w", err)
	}
	return &Server{catalog: catalog, log: log, metrics: metrics, limit: MaxRequestBytes}, nil
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
	on.Register(runtimecatalog.GVHToPath(gvh, h.Name), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		response := s.answer(w, r, gvh, h)
		body, err := json.Marshal(response)
		if err != nil {
			s.log.Error(err, "Could not encode a response", "hook", gvh.Hook)
			http.Error(w, "the response could not be encoded", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// An error here means that the manager has gone. It will ask again.
		_, _ = w.Write(body)
		s.metrics.observe(gvh.Hook, string(response.GetStatus()), time.Since(start))
	}))
	return nil
}

// answer reads the request and has it handled. It always returns a response with a status.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, gvh runtimecatalog.GroupVersionHook, h Hook) (response runtimehooksv1.ResponseObject) {
	log := s.log.WithValues("hook", gvh.Hook)
	defer func() {
		if p := recover(); p != nil {
			log.Error(fmt.Errorf("%v", p), "A handler panicked", "stack", string(debug.Stack()))
			response = s.failure(gvh, "refit met an internal error; its log has the details")
		}
	}()
	body, err := s.read(w, r)
	if err != nil {
		log.Info("Refused a request", "reason", err.Error())
		return s.failure(gvh, err.Error())
	}
	response = h.Handle(ctrl.LoggerInto(r.Context(), log), body)
	if response.GetStatus() == "" {
		log.Error(errors.New("the response has no status"), "A handler is wrong")
		return s.failure(gvh, "refit met an internal error; its log has the details")
	}
	return response
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, fmt.Errorf("the request's method is %s and should be POST", r.Method)
	}
	var body bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= s.limit {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := io.Copy(&body, http.MaxBytesReader(w, r.Body, s.limit)); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, fmt.Errorf("the request's body is larger than %d MiB", s.limit>>20)
		}
		return nil, fmt.Errorf("the request's body could not be read: %w", err)
	}
	return body.Bytes(), nil
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
