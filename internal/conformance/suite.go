package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// Suite is what an extension is looked at with.
type Suite struct {
	// Client calls it: see NewClient.
	Client *http.Client
	// URL is that of the ExtensionConfig.
	URL *url.URL
	// Handlers are the names of the handlers to call. Empty: all for the hooks of in-place updates.
	Handlers []string
	// Requests are sent beside those that managers have sent.
	Requests []Request
	// UpdateMachine has the hook called that changes machines: with the requests for it, or, if there are none, with one that managers have sent.
	UpdateMachine bool

	huge int // bytes of a body that is too large; 0: hugeBody
}

// Result is what was found about a law.
type Result string

// The results.
const (
	Pass Result = "Pass"
	Fail Result = "Fail"
	Skip Result = "Skip"
)

// Finding is what was found about a law.
type Finding struct {
	Law

	Result Result `json:"result"`
	// Reason says why it is broken or was not looked at, or at how much it was.
	Reason string `json:"reason"`
	// Evidence is what shows that the law is broken: some of it, if there is much.
	Evidence []string `json:"evidence,omitempty"`
}

// Report is what was found about an extension.
type Report struct {
	URL      string    `json:"url"`
	Handlers []string  `json:"handlers"`
	Findings []Finding `json:"findings"`
}

// Broken returns the names of the laws that are broken.
func (r *Report) Broken() []string {
	var names []string
	for _, f := range r.Findings {
		if f.Result == Fail {
			names = append(names, f.Name)
		}
	}
	return names
}

// Run looks at the extension. An error says that it could not be reached at all, or that the context has ended.
func (s *Suite) Run(ctx context.Context) (*Report, error) {
	recorded, err := Recorded()
	if err != nil {
		return nil, err
	}
	r := &run{caller: caller{client: s.Client, base: s.URL}, chosen: s.Handlers, update: s.UpdateMachine, huge: cmp.Or(s.huge, hugeBody), requests: slices.Concat(recorded, s.Requests)}
	if slices.ContainsFunc(s.Requests, Request.ForUpdateMachine) {
		// Nothing is done to machines that nobody has named.
		r.requests = slices.Concat(slices.DeleteFunc(recorded, Request.ForUpdateMachine), s.Requests)
	}
	defer s.Client.CloseIdleConnections()
	if err := r.discover(ctx); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	report := &Report{URL: s.URL.String(), Handlers: []string{}}
	for _, h := range r.handlers {
		report.Handlers = append(report.Handlers, h.Name)
	}
	for _, l := range laws {
		v := &verdict{}
		l.check(ctx, r, v)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		report.Findings = append(report.Findings, v.finding(l.Law))
	}
	return report, nil
}

// handler is a handler for a hook of in-place updates.
type handler struct {
	runtimehooksv1.ExtensionHandler

	// gone says why it is not asked any more; empty as long as it is.
	gone string
}

// longest is how long Cluster API waits at most.
const longest = 30 * time.Second

func (h *handler) hook() string { return h.RequestHook.Hook }

func (h *handler) timeout() time.Duration {
	if h.TimeoutSeconds == nil || *h.TimeoutSeconds <= 0 {
		return runtimehooksv1.DefaultHandlersTimeoutSeconds * time.Second
	}
	return min(time.Duration(*h.TimeoutSeconds)*time.Second, longest)
}

// run is one look at an extension.
type run struct {
	caller   caller
	chosen   []string
	update   bool
	huge     int
	requests []Request

	discovery reply
	found     *runtimehooksv1.DiscoveryResponse // nil when it can't be read
	unread    error                             // why not
	handlers  []*handler                        // that are asked

	pairs   []pair      // the requests of CanUpdate hooks, each sent twice
	updates []pair      // those of UpdateMachine
	asked   []*exchange // all that Cluster API might send
	hostile []*exchange // what it would not
}

// pair is one request, sent twice. The second is nil when the first was not answered in time.
type pair struct{ first, second *exchange }

// ask sends a request, unless the handler is gone: then it returns nil.
func (r *run) ask(ctx context.Context, h *handler, q Request) *exchange {
	if h.gone != "" || ctx.Err() != nil {
		return nil
	}
	x := newExchange(h, q, r.caller.post(ctx, h.path(), h.timeout(), q.body))
	r.asked = append(r.asked, x)
	if x.late {
		h.gone = "it did not answer in time before"
	}
	return x
}

// prepare sends the requests that most laws look at.
func (r *run) prepare(ctx context.Context) error {
	for _, h := range r.handlers {
		for _, q := range r.of(h) {
			p := pair{first: r.ask(ctx, h, q)}
			p.second = r.ask(ctx, h, q)
			if p.first == nil {
				break // it is gone
			}
			if q.ForUpdateMachine() {
				r.updates = append(r.updates, p)
			} else {
				r.pairs = append(r.pairs, p)
			}
		}
	}
	return errors.Join(r.probeMessages(ctx), ctx.Err())
}

// of returns the requests that a handler is sent.
func (r *run) of(h *handler) []Request {
	var all []Request
	for _, q := range r.requests {
		if q.hook == h.hook() && (r.update || !q.ForUpdateMachine()) {
			all = append(all, q)
		}
	}
	return all
}

// deciders returns the handlers of the hooks that change nothing, which any request can be sent to.
func (r *run) deciders() []*handler {
	return slices.DeleteFunc(slices.Clone(r.handlers), func(h *handler) bool { return h.hook() == updateMachine })
}

// check looks at one law.
type check func(ctx context.Context, r *run, v *verdict)

// verdict is what is found about a law while it is looked at.
type verdict struct {
	looked   int // at so many answers, patches or handlers
	what     string
	evidence []string
	more     int
	skipped  string // why there was nothing to look at
}

// maxEvidence is how much is shown for one law.
const maxEvidence = 5

func (v *verdict) broken(format string, args ...any) {
	if len(v.evidence) == maxEvidence {
		v.more++
		return
	}
	v.evidence = append(v.evidence, fmt.Sprintf(format, args...))
}

// saw counts what was looked at.
func (v *verdict) saw(what string) { v.looked, v.what = v.looked+1, what }

// skip says why something was not looked at. It counts if nothing was.
func (v *verdict) skip(format string, args ...any) {
	if v.skipped == "" {
		v.skipped = fmt.Sprintf(format, args...)
	}
}

func (v *verdict) finding(l Law) Finding {
	f := Finding{Law: l, Result: Pass, Reason: fmt.Sprintf("%s: %d", v.what, v.looked), Evidence: v.evidence}
	switch {
	case len(v.evidence) > 0:
		f.Result, f.Reason = Fail, v.evidence[0]
		if v.more > 0 {
			f.Evidence = append(f.Evidence, fmt.Sprintf("and %d more", v.more))
		}
	case v.looked == 0:
		f.Result, f.Reason = Skip, v.skipped
		if f.Reason == "" {
			f.Reason = "there was no answer to look at"
		}
	}
	return f
}
