package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
)

// Engine decides what of a change can be made in place. It has no state.
type Engine struct {
	updaters inplace.Updaters
	// registered are extensions that are asked after them. Nil: there are none.
	registered Registered
	// patience is how long all of these together may take to answer.
	patience time.Duration
	accesses Accesses // nil: they are not asked
}

// NewEngine returns an Engine that hears the updaters that are for the machine.
func NewEngine(u inplace.Updaters) *Engine { return &Engine{updaters: u} }

// verdict is what was decided about a request.
type verdict struct {
	namespace, name string          // of the Machine or MachineSet
	subject         inplace.Subject // current
	machine         object          // current
	wanted          object          // the same, desired
	template        bool            // machine is a MachineSet
	current         map[fieldset.Object]object
	desired         []object // in the order of the layout
	outcome
	basis   string // what it rests on beside the request; empty if that is not known
	foreign bool   // extensions that are registered were asked, which may look at all of the objects
	// proposal is what Cluster API will do with the verdict, found out when it is asked for first. It is shared and not to be changed.
	proposal func() (inplace.Proposal, error)
}

// outcome is what a verdict says. Machines with the same change may share it.
type outcome struct {
	change   fieldset.Change
	decision updaters.Decision
	told     account // of the decision
	patches  map[fieldset.Object][]byte
}

// judge decides about a request in which the objects are where the layout says.
func (e *Engine) judge(ctx context.Context, r *rawRequest, l layout) (*verdict, error) {
	v, err := e.read(ctx, r, l)
	if err == nil {
		err = e.settle(ctx, v, l)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// read returns a verdict that has what the request says, and nothing decided.
func (e *Engine) read(ctx context.Context, r *rawRequest, l layout) (*verdict, error) {
	current, desired := map[fieldset.Object]object{}, map[fieldset.Object]object{}
	for _, m := range l {
		c, err := m.decode("current", r.current)
		if err != nil {
			return nil, err
		}
		d, err := m.decode("desired", r.desired)
		if err != nil {
			return nil, err
		}
		if (c.raw == "") != (d.raw == "") {
			// Cluster API does not ask then. An answer would have to be a "no", and that replaces machines.
			return nil, &RequestError{Field: m.field, Problem: "is in one of current and desired only"}
		}
		current[m.object], desired[m.object] = c, d
	}
	subject, err := subjectOf(current[fieldset.Machine], l.of(fieldset.Machine).template)
	if err != nil {
		return nil, err
	}
	subject.Bootstrap = bootstrapOf(current[fieldset.BootstrapConfig])
	basis, err := e.basis(ctx, subject)
	if err != nil {
		return nil, err
	}
	v := &verdict{
		subject:   subject,
		namespace: current[fieldset.Machine].namespace,
		name:      current[fieldset.Machine].name,
		machine:   current[fieldset.Machine],
		wanted:    desired[fieldset.Machine],
		template:  l.of(fieldset.Machine).template,
		current:   current,
		desired:   desiredOf(l, desired),
		basis:     basis,
	}
	v.proposal = sync.OnceValues(v.propose)
	return v, nil
}

// settle decides about what a verdict has of a request.
func (e *Engine) settle(ctx context.Context, v *verdict, l layout) error {
	for i, m := range l {
		oc, differs, err := m.compare(ctx, v.current[m.object], v.desired[i])
		if err != nil {
			return err
		}
		if differs {
			v.change = append(v.change, oc)
		}
	}
	var err error
	if v.decision, err = e.hear(ctx, v.subject, v.change); err != nil {
		return err
	}
	v.patches = map[fieldset.Object][]byte{}
	if err := e.hearRegistered(ctx, v, l, v.current); err != nil {
		return err
	}
	v.told = tellOf(v.decision, v.subject.MadeByKubeadm())
	return v.makePatches(ctx, l, v.current)
}

// hear has the updaters that are for the machine decide. Without a change there is nothing to ask them.
func (e *Engine) hear(ctx context.Context, s inplace.Subject, change fieldset.Change) (updaters.Decision, error) {
	if len(change) == 0 {
		return updaters.Decision{}, nil
	}
	registry, err := e.updaters.For(ctx, s)
	if err != nil {
		return nil, err
	}
	return registry.Decide(ctx, change)
}

// makePatches makes the patches of what is covered, and proves each of them.
func (v *verdict) makePatches(ctx context.Context, l layout, current map[fieldset.Object]object) error {
	for _, oc := range v.change {
		m := l.of(oc.Object)
		covered := v.decision.Covered(oc.Object)
		patch, err := oc.Patch(m.root(), covered)
		if err != nil {
			return fmt.Errorf("make the patch of %s: %w", m.field, err)
		}
		if patch == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.prove(ctx, current[oc.Object], oc, patch, covered); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the patch of %s is wrong, so nothing was decided; please report this: %w", m.field, err)
		}
		v.patches[oc.Object] = patch
	}
	return nil
}

func (l layout) of(o fieldset.Object) member {
	for _, m := range l {
		if m.object == o {
			return m
		}
	}
	return member{}
}

// root is the JSON pointer of the spec.
func (m member) root() string {
	if m.template {
		return "/spec/template/spec"
	}
	return "/spec"
}

// compare returns what differs between the two sides of an object.
func (m member) compare(ctx context.Context, current, desired object) (fieldset.ObjectChange, bool, error) {
	if current.spec == desired.spec {
		return fieldset.ObjectChange{}, false, nil
	}
	c, err := m.decodeSpec("current", current)
	if err != nil {
		return fieldset.ObjectChange{}, false, err
	}
	d, err := m.decodeSpec("desired", desired)
	if err != nil {
		return fieldset.ObjectChange{}, false, err
	}
	oc, differs, err := fieldset.Compare(ctx, m.object, c, d)
	if err != nil {
		return oc, differs, fmt.Errorf("compare current and desired %s: %w", m.field, err)
	}
	return oc, differs, nil
}

func (m member) decodeSpec(side string, o object) (fieldset.Spec, error) {
	s := fieldset.Spec{APIVersion: o.apiVersion, Kind: o.kind}
	if m.template {
		s.Kind = strings.TrimSuffix(s.Kind, "Template")
	}
	if len(o.spec) == 0 {
		return s, nil
	}
	v, err := fieldset.Decode([]byte(o.spec))
	if err != nil {
		return s, &RequestError{Field: side + "." + m.field + strings.ReplaceAll(m.root(), "/", "."), Problem: "can't be read"}
	}
	if m.object == fieldset.Machine {
		v = fieldset.RolloutFields(v)
	}
	s.Value = v
	return s, nil
}

// prove applies the patch as Cluster API will, and compares what then differs from desired with what was not covered.
func (m member) prove(ctx context.Context, current object, oc fieldset.ObjectChange, patch []byte, covered []bool) error {
	patched, err := fieldset.ApplyPatch([]byte(current.raw), patch)
	if err != nil {
		return err
	}
	o, err := m.decode("patched", map[string]gjson.Result{m.field: gjson.ParseBytes(patched)})
	if err != nil {
		return err
	}
	spec, err := m.decodeSpec("patched", o)
	if err != nil {
		return err
	}
	rest, _, err := fieldset.Compare(ctx, m.object, spec, oc.Desired)
	if err != nil {
		return err
	}
	var remaining, left []fieldpath.Path
	for _, f := range rest.Fields {
		remaining = append(remaining, f.Path)
	}
	for i, f := range oc.Fields {
		if !covered[i] {
			left = append(left, f.Path)
		}
	}
	slices.SortFunc(remaining, fieldpath.Path.Compare)
	slices.SortFunc(left, fieldpath.Path.Compare)
	if !slices.EqualFunc(remaining, left, fieldpath.Path.Equals) {
		return errors.New("what it leaves is not what no updater covers")
	}
	return nil
}
