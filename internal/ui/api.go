package ui

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// about is what each answer says of itself.
type about struct {
	// Now is when it was so, and Changes counts what was seen until then.
	Now       time.Time `json:"now"`
	Changes   uint64    `json:"changes"`
	Namespace string    `json:"namespace,omitempty"`
	// Problems are what can't be read, and Loading what has not been yet.
	Problems []string `json:"problems"`
	Loading  []string `json:"loading"`
	// States are the names of all states, those that need somebody first. Cells have places in this list.
	States []state `json:"states"`
}

// answer is what the page is told.
type answer[T any] struct {
	About about `json:"about"`
	Data  T     `json:"data"`
}

// questions are those of the page, and events is what tells it when to ask again.
var questions = []string{"fleet", "machines", "timeline", "policies", "update"}

const events = "events"

// API answers the page's questions, in JSON.
func (f *Fleet) API() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/fleet", asked(f, func(s *snapshot, q query) any { return s.gridOf(q) }))
	mux.HandleFunc("GET /api/machines", asked(f, func(s *snapshot, q query) any { return s.listOf(q) }))
	mux.HandleFunc("GET /api/timeline", asked(f, func(s *snapshot, q query) any { return s.weeksOf(q) }))
	mux.HandleFunc("GET /api/policies", asked(f, func(s *snapshot, q query) any { return f.policyList(s, q) }))
	mux.HandleFunc("GET /api/update", f.serveUpdate)
	mux.HandleFunc("GET /api/events", f.serveEvents)
	return mux
}

// asked answers out of how the fleet is now.
func asked(f *Fleet, of func(*snapshot, query) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := f.look(r.Context())
		if err != nil {
			refuse(w, http.StatusBadGateway, bounded(err.Error()))
			return
		}
		write(w, answer[any]{f.about(s), of(s, queryOf(r.URL.Query()))})
	}
}

func (f *Fleet) about(s *snapshot) about {
	return about{Now: s.now.UTC(), Changes: s.changes, Namespace: f.Namespace, Problems: f.problems(), Loading: f.loading(), States: states}
}

// eventsTimeout bounds how long Events are looked for.
const eventsTimeout = 10 * time.Second

func (f *Fleet) serveUpdate(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), eventsTimeout)
	defer cancel()
	v := r.URL.Query()
	key := types.NamespacedName{Namespace: v.Get("namespace"), Name: v.Get("name")}
	d, ok, err := f.detailOf(ctx, key)
	switch {
	case err != nil:
		refuse(w, http.StatusBadGateway, bounded(err.Error()))
	case !ok:
		refuse(w, http.StatusNotFound, "There is no Machine of this name here, or it has not been read yet.")
	default:
		s, err := f.look(ctx)
		if err != nil {
			refuse(w, http.StatusBadGateway, bounded(err.Error()))
			return
		}
		write(w, answer[*detail]{f.about(s), d})
	}
}

func write(w http.ResponseWriter, v any) {
	data, err := encode(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(data) // who has left is told nothing
}

// refuse says in JSON why there is no answer.
func refuse(w http.ResponseWriter, code int, why string) {
	data, _ := encode(map[string]string{"error": why}) // texts can be written
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(data) // who has left is told nothing
}
