package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/tidwall/gjson"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/jsonscan"
	"github.com/capi-refit/refit/internal/plain"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/updaters"
)

// Registered has the extensions that are registered as updaters.
type Registered interface {
	// For returns those for a machine, in the order in which they are asked.
	For(ctx context.Context, s registered.Subject) ([]*registered.Remote, error)
	// Claimants says who they are, and asks none of them. Empty: there is none.
	Claimants(ctx context.Context, s registered.Subject) string
	// Basis returns what changes when they do, or for which of them the machine is.
	Basis(ctx context.Context, s registered.Subject) (string, error)
}

// longestQuestions is how long all of them together may take to answer. Cluster API waits for hookTimeout, and has to be told whose fault it is.
const longestQuestions = 6 * time.Second

// With returns an Engine that asks the extensions about what the updaters leave.
func (e *Engine) With(r Registered) *Engine {
	out := *e
	out.registered, out.patience = r, longestQuestions
	return &out
}

// hearRegistered asks the extensions that are registered for the machine about what is not covered yet, one after the other, until all is. Each
// is asked about the objects as those before it leave them. One that can't be asked, or whose answer can't be right, covers nothing; if nobody
// else covers what is left, nothing is decided: for its fault no machine is replaced.
func (e *Engine) hearRegistered(ctx context.Context, v *verdict, l layout, current map[fieldset.Object]object) error {
	if e.registered == nil || v.decision.InPlace() {
		return nil
	}
	v.foreign = true
	remotes, err := e.remotes(ctx, v, current)
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	ends, _ := asked.Deadline()
	var faults []error
	for i, r := range remotes {
		limit := time.Until(ends) / time.Duration(2*(len(remotes)-i)) // each is asked twice
		switch err := v.hearOne(asked, l, current, r, limit); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			faults = append(faults, err)
		}
		if v.decision.InPlace() {
			return nil
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("nothing was decided, so no machine is replaced; it is asked again: %w", plain.Join(faults...))
	}
	return nil
}

// remotes returns the extensions that are registered for the machine.
func (e *Engine) remotes(ctx context.Context, v *verdict, current map[fieldset.Object]object) ([]*registered.Remote, error) {
	becomes, err := subjectOf(v.wanted, v.template)
	if err != nil {
		return nil, err
	}
	s := registered.Subject{
		Subject: v.subject, Infrastructure: strings.TrimSuffix(current[fieldset.InfrastructureMachine].kind, "Template"), Becomes: becomes.Labels,
	}
	if s.Becomes == nil {
		s.Becomes = map[string]string{}
	}
	remotes, err := e.registered.For(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("which registered updaters are to be asked is not known, so nothing was decided: %w", err)
	}
	return remotes, nil
}

// hearOne asks one extension about what is left.
func (v *verdict) hearOne(ctx context.Context, l layout, current map[fieldset.Object]object, r *registered.Remote, limit time.Duration) error {
	left, err := v.leave(l, current)
	if err != nil {
		return err
	}
	claimed, err := v.claims(ctx, l, left, r, limit)
	if err != nil {
		return err
	}
	takes := []updaters.Action{{Type: disruption.None}}
	if r.Drains() {
		takes[0].Type = disruption.Drain
	}
	for _, i := range claimed { // all of its answer is right, or nothing of it counts
		v.decision[i] = updaters.Verdict{Field: v.decision[i].Field, Updater: registered.UpdaterPrefix + r.Name(), Actions: takes}
	}
	return nil
}

// claims asks one extension, and returns the indices in the decision of the fields that it claims.
func (v *verdict) claims(ctx context.Context, l layout, left map[fieldset.Object]object, r *registered.Remote, limit time.Duration) ([]int, error) {
	request, err := v.question(l, left)
	if err != nil {
		return nil, err
	}
	hook := registered.CanUpdateMachine
	if v.template {
		hook = registered.CanUpdateMachineSet
	}
	answers, err := r.CanUpdate(ctx, hook, request, limit)
	if err != nil {
		return nil, err
	}
	claimed, err := v.claimedBy(ctx, l, left, r, answers[0])
	if err != nil {
		return nil, err
	}
	switch again, err := v.claimedBy(ctx, l, left, r, answers[1]); {
	case err != nil:
		return nil, err
	case !slices.Equal(claimed, again): // the patches may differ, in the order of operations
		return nil, &registered.Fault{Updater: r.Name(), Err: fmt.Errorf("it has answered %s in two ways to the same question", hook)}
	}
	return claimed, nil
}

// claimedBy returns the indices in the decision of the fields that an answer claims. An error is a Fault.
func (v *verdict) claimedBy(ctx context.Context, l layout, left map[fieldset.Object]object, r *registered.Remote, patches registered.Patches) ([]int, error) {
	var claimed []int
	for _, m := range l {
		p, ok := patches[m.object]
		if !ok {
			continue
		}
		fields, err := v.claimed(ctx, m, left[m.object], p)
		if err != nil {
			return nil, &registered.Fault{Updater: r.Name(), Err: fmt.Errorf("its patch of %s %w", m.field, err)}
		}
		claimed = append(claimed, fields...)
	}
	return claimed, nil
}

// leave returns the current objects as what is covered leaves them.
func (v *verdict) leave(l layout, current map[fieldset.Object]object) (map[fieldset.Object]object, error) {
	out := map[fieldset.Object]object{}
	for _, m := range l {
		o := current[m.object]
		if oc, ok := v.change.Object(m.object); ok {
			patch, err := oc.Patch(m.root(), v.decision.Covered(m.object))
			if err != nil {
				return nil, fmt.Errorf("make the patch of %s: %w", m.field, err)
			}
			if patch != nil {
				patched, err := fieldset.ApplyPatch([]byte(o.raw), patch)
				if err != nil {
					return nil, fmt.Errorf("the patch of %s is wrong, so nothing was decided; please report this: %w", m.field, err)
				}
				o.raw = string(patched)
			}
		}
		out[m.object] = o
	}
	return out, nil
}

// question is the request to an extension.
func (v *verdict) question(l layout, left map[fieldset.Object]object) ([]byte, error) {
	kind := canUpdateMachineKind
	if v.template {
		kind = canUpdateMachineSetKind
	}
	sides := map[string]map[string]json.RawMessage{"current": {}, "desired": {}}
	for i, m := range l {
		if o := left[m.object]; o.raw != "" {
			sides["current"][m.field], sides["desired"][m.field] = json.RawMessage(o.raw), json.RawMessage(v.desired[i].raw)
		}
	}
	return json.Marshal(map[string]any{
		"apiVersion": runtimehooksv1.GroupVersion.String(), "kind": kind, "current": sides["current"], "desired": sides["desired"],
	})
}

// maxOperations bounds a JSON patch of an extension, and maxPatch its bytes.
const (
	maxOperations = 2000
	maxPatch      = 1 << 20
)

// apply applies the patch of an extension as Cluster API would, if that takes no more than such a patch needs to.
func apply(object []byte, p runtimehooksv1.Patch) ([]byte, error) {
	if len(p.Patch) > maxPatch {
		return nil, fmt.Errorf("is longer than %d bytes", maxPatch)
	}
	if err := jsonscan.Check(p.Patch); err != nil {
		return nil, fmt.Errorf("is not read: %w", err)
	}
	if !gjson.ValidBytes(p.Patch) {
		return nil, errors.New("is not JSON")
	}
	var patched []byte
	var err error
	switch p.PatchType {
	case runtimehooksv1.JSONMergePatchType:
		patched, err = jsonpatch.MergePatch(object, p.Patch)
	case runtimehooksv1.JSONPatchType:
		if err := checkOperations(p.Patch); err != nil {
			return nil, err
		}
		patched, err = fieldset.ApplyPatch(object, p.Patch)
	default:
		return nil, fmt.Errorf("is of the type %q, and can be JSONPatch or JSONMergePatch", registered.Printable(string(p.PatchType)))
	}
	if err != nil {
		return nil, fmt.Errorf("does not apply: %w", err)
	}
	return patched, nil
}

// checkOperations returns an error if a JSON patch has more operations than one needs, or such as it does not need.
func checkOperations(patch []byte) error {
	operations := gjson.ParseBytes(patch).Array()
	if len(operations) > maxOperations {
		return fmt.Errorf("has more than %d operations", maxOperations)
	}
	for _, o := range operations {
		if op := o.Get("op").Str; !slices.Contains([]string{"add", "remove", "replace", "test"}, op) {
			return errors.New("has an operation other than add, remove, replace and test") // a copy of a copy has no bound
		}
	}
	return nil
}

// claimed returns the indices in the decision of the fields that a patch brings to what is desired. It may change nothing else.
func (v *verdict) claimed(ctx context.Context, m member, left object, p runtimehooksv1.Patch) ([]int, error) {
	if left.raw == "" {
		return nil, errors.New("is of an object that was not in the question")
	}
	patched, err := apply([]byte(left.raw), p)
	if err != nil {
		return nil, err
	}
	if !sameBesideSpec(left.raw, string(patched), m) {
		return nil, fmt.Errorf("changes something outside of %s", strings.TrimPrefix(strings.ReplaceAll(m.root(), "/", "."), "."))
	}
	before, err := m.specOf(left.raw)
	if err != nil {
		return nil, err
	}
	after, err := m.specOf(string(patched))
	if err != nil {
		return nil, errors.New("makes an object that can't be read")
	}
	moved, moves, err := fieldset.Compare(ctx, m.object, before, after)
	if err != nil {
		return nil, fmt.Errorf("makes an object that can't be compared with the current one: %w", err)
	}
	oc, differs := v.change.Object(m.object)
	switch {
	case !differs && moves:
		return nil, errors.New("changes an object that does not change")
	case !differs: // some send an empty patch of each object
		return nil, nil
	}
	remaining, _, err := fieldset.Compare(ctx, m.object, after, oc.Desired)
	if err != nil {
		return nil, fmt.Errorf("makes an object that can't be compared with the desired one: %w", err)
	}
	return v.covers(m.object, moved, remaining)
}

// covers returns which fields that are left a patch covers, which has moved some fields, and after which some remain that are not as desired.
func (v *verdict) covers(object fieldset.Object, moved, remaining fieldset.ObjectChange) ([]int, error) {
	still, changed := namesOf(remaining), namesOf(moved)
	open := map[string]bool{}
	var claimed []int
	for i, f := range v.decision {
		name := f.Field.String()
		if f.Field.Object != object || f.Covered() {
			continue
		}
		if open[name] = true; !still[name] {
			claimed = append(claimed, i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(still)) {
		if !open[name] {
			return nil, fmt.Errorf("changes %s, which does not differ", cut(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		if still[name] {
			return nil, fmt.Errorf("changes %s to something else than what is desired", cut(name))
		}
	}
	return claimed, nil
}

func namesOf(c fieldset.ObjectChange) map[string]bool {
	names := map[string]bool{}
	for _, f := range c.Fields {
		names[f.String()] = true
	}
	return names
}

// specOf returns the spec of an object.
func (m member) specOf(raw string) (fieldset.Spec, error) {
	o, err := m.decode("current", map[string]gjson.Result{m.field: gjson.Parse(raw)})
	if err != nil {
		return fieldset.Spec{}, err
	}
	return m.decodeSpec("current", o)
}

// sameBesideSpec reports whether two objects are the same but for what Cluster API takes out of a patched one.
func sameBesideSpec(a, b string, m member) bool {
	one, ok := m.withoutSpec(a)
	other, ok2 := m.withoutSpec(b)
	return ok && ok2 && reflect.DeepEqual(one, other)
}

// withoutSpec decodes an object without its spec, and without its status, of which Cluster API takes nothing over.
func (m member) withoutSpec(raw string) (any, bool) {
	object, err := fieldset.Decode([]byte(raw))
	if err != nil {
		return nil, false
	}
	fields := strings.Split(strings.TrimPrefix(m.root(), "/"), "/")
	at, ok := object.(map[string]any)
	delete(at, "status")
	for _, f := range fields[:len(fields)-1] {
		if ok {
			at, ok = at[f].(map[string]any)
		}
	}
	if ok {
		delete(at, fields[len(fields)-1])
	}
	return object, ok
}

// basis is what a verdict rests on beside the request.
func (e *Engine) basis(ctx context.Context, s inplace.Subject) (string, error) {
	b, ok := e.updaters.(Basis)
	if !ok {
		return "", nil
	}
	basis, err := b.Basis(ctx, s)
	if err != nil || e.registered == nil {
		return basis, err
	}
	// The rest of what they are selected by is in the request.
	more, err := e.registered.Basis(ctx, registered.Subject{Subject: s, AnyInfrastructure: true})
	return basis + "; " + more, err
}

// engineBasis is the Basis of an engine.
type engineBasis struct{ *Engine }

// Basis implements Basis.
func (b engineBasis) Basis(ctx context.Context, s inplace.Subject) (string, error) {
	return b.basis(ctx, s)
}
