package conformance

import (
	"context"
	"slices"
	"strings"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// nothingClaimed is why laws of patches are skipped.
const nothingClaimed = "no request was answered with a patch; name one of yours that is, with --filename"

// checkPatches looks at one of the laws of patches.
func checkPatches(l Law) check {
	return func(ctx context.Context, r *run, v *verdict) {
		for _, p := range r.pairs {
			if !p.first.succeeded() {
				continue
			}
			for range p.first.patches {
				v.saw("patches")
			}
			for _, b := range judge(ctx, p.first).breaches {
				if b.law == l.Name {
					v.broken("%s: %s", p.first, b.evidence)
				}
			}
		}
		v.skip(nothingClaimed)
	}
}

func checkDeterministic(_ context.Context, r *run, v *verdict) {
	for _, p := range r.pairs {
		if p.first.answer == nil || p.second == nil {
			continue
		}
		v.saw("pairs of answers")
		if d := p.first.differs(p.second); d != "" {
			v.broken("%s: %s", p.first, d)
		}
	}
}

// target is a request, and a handler that it is for.
type target struct {
	handler *handler
	request Request
}

// targets are the requests of the CanUpdate hooks.
func (r *run) targets() []target {
	var all []target
	for _, h := range r.deciders() {
		for _, q := range r.of(h) {
			all = append(all, target{h, q})
		}
	}
	return all
}

// firsts are the first requests of each of the CanUpdate hooks.
func (r *run) firsts() []target {
	var all []target
	for _, h := range r.deciders() {
		if own := r.of(h); len(own) > 0 {
			all = append(all, target{h, own[0]})
		}
	}
	return all
}

// variants sends requests that are changed in some way, and has the answers looked at. Those that can't be read are left to other laws.
func (r *run) variants(ctx context.Context, v *verdict, of []target, change func(q Request) (Request, error), look func(x *exchange)) {
	for _, t := range of {
		q, err := change(t.request)
		if err != nil {
			v.skip("a request could not be made: %v", err)
			continue
		}
		x := r.ask(ctx, t.handler, q)
		if x == nil {
			v.skip("%s: %s", t.handler.Name, t.handler.gone)
			continue
		}
		if x.answer != nil {
			v.saw("answers")
			look(x)
		}
	}
}

func checkEqual(ctx context.Context, r *run, v *verdict) {
	r.variants(ctx, v, r.targets(), Request.equal, func(x *exchange) {
		if x.status == runtimehooksv1.ResponseStatusFailure {
			v.broken("%s: the status is %s, with the message %s", x, quote(string(x.status)), quote(x.message))
			return
		}
		if changes := judge(ctx, x).changes; x.success() && len(changes) > 0 {
			v.broken("%s: patches change %d fields, the first of which is %s", x, len(changes), quote(changes[0].String()))
		}
	})
}

func checkIdempotent(ctx context.Context, r *run, v *verdict) {
	for _, p := range r.pairs {
		x := p.first
		if !x.succeeded() {
			continue
		}
		j := judge(ctx, x)
		wrong := slices.ContainsFunc(j.breaches, func(b breach) bool { return b.law != lawPatchInside.Name })
		if wrong || len(j.changes) == 0 {
			continue // there are laws for that
		}
		r.variants(ctx, v, []target{{x.handler, x.request}}, func(q Request) (Request, error) {
			return q.edit("with current as the patches leave it", func(s sides) {
				for field, object := range j.after {
					s.current[field] = object
				}
			})
		}, func(again *exchange) {
			if !again.success() {
				return
			}
			if more := judge(ctx, again).changes; len(more) > 0 {
				v.broken("%s: patches change %d fields more, the first of which is %s", again, len(more), quote(more[0].String()))
			}
		})
	}
	v.skip(nothingClaimed)
}

// unknownAPI is of kinds that nobody has.
const unknownAPI = "conformance.capi-refit.dev/v1alpha1"

// ofUnknownKind has two objects of a kind that nobody has differ, and all others equal.
func ofUnknownKind(q Request, o fieldset.Object, kind string) (Request, error) {
	q, err := q.equal()
	if err != nil {
		return q, err
	}
	m := memberOf(q.hook, o)
	if m.template {
		kind += "Template"
	}
	return q.edit("of kind "+kind, func(s sides) {
		for side, size := range map[string]string{"current": "small", "desired": "large"} {
			objects := descend(s.request, side)
			object := descend(objects, m.field)
			object["apiVersion"], object["kind"] = unknownAPI, kind
			spec := specOf(objects, m)
			clear(spec)
			spec["size"] = size
		}
	})
}

func checkUnknownKinds(ctx context.Context, r *run, v *verdict) {
	for _, o := range []struct {
		fieldset.Object

		kind string
	}{{fieldset.InfrastructureMachine, "ConformanceMachine"}, {fieldset.BootstrapConfig, "ConformanceConfig"}} {
		change := func(q Request) (Request, error) { return ofUnknownKind(q, o.Object, o.kind) }
		r.variants(ctx, v, r.firsts(), change, func(x *exchange) {
			field := memberOf(x.request.hook, o.Object).field
			for _, c := range judge(ctx, x).changes {
				if c.member == field {
					v.broken("%s: a patch changes %s", x, quote(c.String()))
				}
			}
		})
	}
}

// unknownField is one that nobody has.
const unknownField = "refitConformance"

func checkUnknownFields(ctx context.Context, r *run, v *verdict) {
	for _, values := range []struct {
		what             string
		current, desired any
	}{{"added", nil, "new"}, {"changed", "old", "new"}, {"removed", "old", nil}} {
		for _, o := range []fieldset.Object{fieldset.BootstrapConfig, fieldset.InfrastructureMachine} {
			change := func(q Request) (Request, error) {
				return q.withUnknownField(o, values.what, values.current, values.desired)
			}
			r.variants(ctx, v, r.firsts(), change, func(x *exchange) {
				for _, c := range judge(ctx, x).changes {
					if strings.Contains(c.path, unknownField) {
						v.broken("%s: a patch changes %s", x, quote(c.String()))
					}
				}
			})
		}
	}
}

// withUnknownField has a field that nobody has differ in an object, and all others equal. A value that is nil is none.
func (r Request) withUnknownField(o fieldset.Object, what string, current, desired any) (Request, error) {
	same, err := r.equal()
	if err != nil {
		return r, err
	}
	m := memberOf(r.hook, o)
	return same.edit("and "+m.field+"."+strings.Join(m.root(), ".")+"."+unknownField+" "+what, func(s sides) {
		for _, side := range []struct {
			objects map[string]any
			value   any
		}{{s.current, current}, {s.desired, desired}} {
			if side.value != nil {
				specOf(side.objects, m)[unknownField] = side.value
			}
		}
	})
}

// done reports whether an answer to UpdateMachine says that the update is complete, and inProgress that it is not.
func (x *exchange) done() bool { return x.success() && x.retry != nil && *x.retry == 0 }

func (x *exchange) inProgress() bool { return x.success() && x.retry != nil && *x.retry != 0 }

func checkUpdateRepeats(_ context.Context, r *run, v *verdict) {
	if !r.update {
		v.skip("UpdateMachine changes machines, so it was not called; --update-machine has it called")
	}
	v.skip("no handler for UpdateMachine was asked")
	for _, p := range r.updates {
		if p.first.answer == nil || p.second == nil || p.second.answer == nil {
			continue // there are laws for that
		}
		v.saw("pairs of answers")
		if p.first.done() && p.second.inProgress() {
			v.broken("%s: it is done, and then in progress", p.first)
		}
	}
}
