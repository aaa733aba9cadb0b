package conformance

import (
	"bytes"
	"context"
	"strings"

	"github.com/capi-refit/refit/internal/fieldset"
)

const (
	// hugeBody is more than Cluster API's own server reads, in bytes.
	hugeBody = 20<<20 + 1
	// deepBody is how deep lists nest in a body that is deep.
	deepBody = 100_000
)

// checkMoreFields sends what a later version may have: of Kubernetes' APIs, fields that are not known are no fault.
func checkMoreFields(ctx context.Context, r *run, v *verdict) {
	for _, p := range r.pairs {
		change := func(q Request) (Request, error) {
			return q.edit("with a field more", func(s sides) { s.request[unknownField] = map[string]any{"a": []any{"b"}} })
		}
		r.variants(ctx, v, []target{{p.first.handler, p.first.request}}, change, func(x *exchange) {
			if !x.success() || p.first.answer == nil {
				return
			}
			if d := p.first.differs(x); d != "" && p.same() {
				v.broken("%s: %s", x, d)
			}
		})
	}
}

// same reports whether both answers are there and are the same: with others nothing can be compared.
func (p pair) same() bool {
	return p.first.answer != nil && p.second != nil && p.first.differs(p.second) == ""
}

func checkContentType(ctx context.Context, r *run, v *verdict) {
	if r.caller.typeless != "" {
		v.saw("answers")
		v.broken("%s", r.caller.typeless)
	}
	for _, p := range r.calm() {
		for _, contentType := range []string{jsonType, "application/x-www-form-urlencoded"} {
			x := r.sendHostile(ctx, p.first.handler, p.first.request.like("with Content-Type "+contentType, p.first.request.body), contentType)
			if x == nil {
				continue
			}
			v.saw("answers")
			switch {
			case x.err != nil && !x.late:
				v.broken("%s: %s", x, quote(x.what()))
			case contentType == jsonType && r.caller.typeless == "" && p.first.differs(x) != "":
				v.broken("%s: without a Content-Type and with it: %s", p.first, p.first.differs(x))
			}
			r.askAgain(ctx, v, p, x)
		}
	}
}

// checkBody returns what looks at the answers to bodies that Cluster API never sends. Of some the connection may end.
func checkBody(what string, mayEnd bool, bodyOf func(r *run, q Request) ([]byte, error)) check {
	return func(ctx context.Context, r *run, v *verdict) {
		for _, p := range r.calm() {
			body, err := bodyOf(r, p.first.request)
			if err != nil {
				v.skip("a request could not be made: %v", err)
				continue
			}
			x := r.sendHostile(ctx, p.first.handler, p.first.request.like(what, body), r.caller.contentType)
			if x == nil {
				v.skip("%s: %s", p.first.handler.Name, p.first.handler.gone)
				continue
			}
			v.saw("answers")
			switch {
			case x.succeeded():
				v.broken("%s: the status is %q", x, x.status)
			case x.late, x.err != nil && !mayEnd:
				v.broken("%s: %s", x, quote(x.what()))
			}
			r.askAgain(ctx, v, p, x)
		}
		v.skip("no request was answered, so that nothing could be compared")
	}
}

// calm returns for each handler that is there a request that was answered, twice in the same way.
func (r *run) calm() []pair {
	var all []pair
	seen := map[*handler]bool{}
	for _, p := range r.pairs {
		if p.same() && !seen[p.first.handler] {
			seen[p.first.handler] = true
			all = append(all, p)
		}
	}
	return all
}

// sendHostile sends what Cluster API would not, on a connection that nothing else is sent on; nil if the handler is gone.
func (r *run) sendHostile(ctx context.Context, h *handler, q Request, contentType string) *exchange {
	if h.gone != "" {
		return nil
	}
	r.caller.client.CloseIdleConnections()
	x := newExchange(h, q, r.caller.send(ctx, h.path(), contentType, h.timeout(), q.body))
	r.caller.client.CloseIdleConnections()
	r.hostile = append(r.hostile, x)
	return x
}

// askAgain looks whether the extension answers as before. One that does not is gone.
func (r *run) askAgain(ctx context.Context, v *verdict, p pair, after *exchange) {
	h := p.first.handler
	again := newExchange(h, p.first.request, r.caller.send(ctx, h.path(), r.caller.contentType, h.timeout(), p.first.request.body))
	d := p.first.differs(again)
	if d == "" {
		return
	}
	v.broken("after %s: asked again: %s", after, d)
	for _, one := range r.handlers {
		one.gone = "it did not answer as before, after " + after.request.name
	}
}

var (
	checkBroken = checkEach(
		checkBody("as an empty body", false, func(*run, Request) ([]byte, error) { return nil, nil }),
		checkBody("cut off", false, func(_ *run, q Request) ([]byte, error) { return q.body[:len(q.body)/2], nil }),
		checkBody("as a text", false, func(*run, Request) ([]byte, error) { return []byte("in place, please"), nil }),
	)
	checkDeep = checkBody("with lists that nest deep", true, deep)
	checkHuge = checkBody("as more than 20 MiB", true, huge)
)

func checkEach(all ...check) check {
	return func(ctx context.Context, r *run, v *verdict) {
		for _, c := range all {
			c(ctx, r, v)
		}
	}
}

// deep returns a request of which a field nests deep.
func deep(_ *run, q Request) ([]byte, error) {
	const mark = "refit-conformance-deep"
	marked, err := q.edit("deep", func(s sides) { specOf(s.desired, memberOf(q.hook, fieldset.BootstrapConfig))[unknownField] = mark })
	lists := strings.Repeat("[", deepBody) + strings.Repeat("]", deepBody)
	return bytes.Replace(marked.body, []byte(`"`+mark+`"`), []byte(lists), 1), err
}

// huge returns a request that is larger than Cluster API's own server reads, and right but for that.
func huge(r *run, q Request) ([]byte, error) {
	large, err := q.edit("huge", func(s sides) { descend(s.request, "settings")["padding"] = strings.Repeat("x", r.huge) })
	return large.body, err
}
